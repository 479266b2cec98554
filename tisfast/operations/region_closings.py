"""Who waits for clients' GPU memory to be closed, and what they are told.  Layer 4 (operations).

Each call that unregisters has a number.  Who waits waits for all with its own number or a lower one, so nobody keeps a
list of what it waits for.  What is told is made in slices, once for all who wait alike.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from itertools import takewhile
from typing import Final, TypeVar

from tisfast import limits, tuning
from tisfast.errors import Internal, TisError, Unavailable
from tisfast.operations.memory_closing import Closing, Uses, closing_of
from tisfast.operations.region_words import Told, named
from tisfast.operations.slices import Pieces, in_slices

log = logging.getLogger("tisfast.gpu")
_LOOK_SECONDS: Final = 1.0
"""So long what was found of what is not closed is told to all who waited before."""
_Made = TypeVar("_Made")


class _Batch:
    """All that one call has unregistered.  removed: what was not looked at yet, by name; make: takes one out of it."""

    def __init__(self, number: int, removed: Mapping[str, object], make: Callable[[str], Closing]) -> None:
        self.number, self.removed, self.make = number, removed, make
        self.open: dict[Closing, None] = {}


class _Row:
    """What is closed under one name, or all of it, in the order of the calls' numbers; who waits, and for which number.

    logged: the number up to which the log has what takes long.
    """

    def __init__(self) -> None:
        self.open: OrderedDict[Closing | _Batch, None] = OrderedDict()
        self.refused: OrderedDict[Closing, None] = OrderedDict()  # done, and open all the same
        self.waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()
        self.logged = 0

    @property
    def is_over(self) -> bool:
        return not (self.open or self.refused or self.waiting)

    def until(self, number: int) -> asyncio.Future[None]:
        """Done when all up to this number is.  The last number that there is, so that these stay in order."""
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting[closed] = number
        self.release()
        return closed

    def release(self) -> None:
        """Those who wait for nothing more."""
        open_from = next(iter(self.open)).number if self.open else float("inf")
        while self.waiting:
            closed, number = next(iter(self.waiting.items()))
            if number >= open_from:
                break
            del self.waiting[closed]
            if not closed.done():
                closed.set_result(None)

    def late(self, number: int) -> Iterator[Closing]:
        """What is open up to this number."""
        for each in list(takewhile(lambda one: one.number <= number, self.open)):
            yield from list(each.open) if isinstance(each, _Batch) else (each,)


class _When(Enum):
    """When who waits is told."""

    CLOSED = "it is closed, or refused"
    LATE = "it takes too long"
    END = "the server ends"


class _Look:
    """What was found of all that is not closed: told by row, number and moment."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.uses = Uses()
        self.told: dict[tuple[_Row, int, _When], asyncio.Future[TisError | None]] = {}


class Closings:
    """All that is being closed, by the names of regions that it was."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._all = _Row()
        self._of: dict[str, _Row] = {}
        self._batches: dict[_Batch, None] = {}  # with something that was not looked at
        self._number = 0
        self._count = 0  # of what is not closed, and of the refusals that nobody was told of
        self._told: OrderedDict[Closing, None] = OrderedDict()  # refused, and somebody was told; the oldest first
        self._leaving: dict[Closing, None] = {}  # of these, what only those are told of who wait already
        self._waiting: set[asyncio.Future[None]] = set()
        self._begun: set[asyncio.Task[None]] = set()  # of these: to cancel another one tells nobody anything
        self._look = _Look()
        self._turn = asyncio.Lock()  # to make what is told
        self._is_ended = False

    def __len__(self) -> int:
        """How much is being closed, and how many refusals nobody was told of."""
        return self._count

    # ---- what is closed

    def add(self, what: Closing) -> None:
        """Under its name until it is done, and where it is refused until it is closed all the same."""
        self._look_at(what.name)
        self._number += 1
        self._count += 1
        what.number = self._number
        self._all.open[what] = None
        self._begin(what, None)

    def add_all(self, removed: Mapping[str, object], make: Callable[[str], Closing]) -> None:
        """What was unregistered in one call, by name, in a few slices.  make: takes one out of `removed`."""
        if removed:
            self._number += 1
            self._count += len(removed)
            batch = _Batch(self._number, removed, make)
            self._all.open[batch] = self._batches[batch] = None
            self._pieces.add(partial(self._look_at_next, batch))

    def _look_at_next(self, batch: _Batch) -> bool:
        """Whether there is more."""
        if batch.removed:
            self._take(batch, next(iter(batch.removed)))
        return bool(batch.removed)

    def _look_at(self, name: str) -> None:
        """What comes later under this name is to be behind what was there before."""
        for batch in [each for each in self._batches if name in each.removed]:
            self._take(batch, name)

    def _take(self, batch: _Batch, name: str) -> None:
        what = closing_of(name, batch.make)
        what.number = batch.number
        batch.open[what] = None
        if not batch.removed:
            del self._batches[batch]
        self._begin(what, batch)

    def _begin(self, what: Closing, batch: _Batch | None) -> None:
        row = self._of.get(what.name)
        if row is None:
            row = self._of[what.name] = _Row()
        row.open[what] = None
        what.done.add_done_callback(partial(self._end, what, row, batch))

    def _end(self, what: Closing, row: _Row, batch: _Batch | None, done: asyncio.Future[None]) -> None:
        del row.open[what]
        if batch is None:
            del self._all.open[what]
        else:
            del batch.open[what]
            if not batch.open and not batch.removed:
                del self._all.open[batch]
        if what.refusals:
            row.refused[what] = self._all.refused[what] = None
        else:
            self._count -= 1
        error = None if done.cancelled() else done.exception()
        if error is not None:
            log.error("closing %s failed", named([what.name]), exc_info=error)
        self._all.release()
        row.release()
        self._tidy(what.name, row)

    def unfinished(self) -> Iterable[tuple[str, str]]:
        """What is not closed: its name, and what it waits for."""
        for batch in list(self._batches):
            while self._look_at_next(batch):
                pass
        uses = Uses()
        for each in self._all.late(self._number):
            if each.done.done():  # its end is a turn of the loop away
                continue
            for _ in each.walk(uses):
                pass
            yield each.name, str(each.waits(uses))

    # ---- refusals

    def tidied(self) -> int:
        """Forget what was refused and is closed all the same: how much there is then."""
        for what in list(self._all.refused):
            if not what.refusals:
                self._forget(what)
        return len(self)

    def used_again(self, name: str) -> None:
        """A region of this name is registered: who unregisters that later does not ask for what was told before."""
        row = self._of.get(name)
        if row is None:
            return
        self._number += 1
        for each in [one for one in row.refused if one.is_told and one.number < one.over]:
            each.over = min(each.over, self._number)
            self._leaving[each] = None
        self._forget_leaving()

    def _forget_leaving(self) -> None:
        if not self._waiting:
            for each in list(self._leaving):
                self._forget(each)

    def _tell(self, what: Closing) -> None:
        """Its refusals: they stay, as who asked may have left."""
        if not what.is_told:
            what.is_told = True
            self._count -= 1
            self._told[what] = None
            if len(self._told) > limits.GPU_REFUSALS_MAX:
                self._forget(next(iter(self._told)))

    def _forget(self, what: Closing) -> None:
        if what not in self._all.refused:
            return
        row = self._of[what.name]
        del self._all.refused[what], row.refused[what]
        self._told.pop(what, None)
        self._leaving.pop(what, None)
        self._count -= not what.is_told
        self._tidy(what.name, row)

    def _tidy(self, name: str, row: _Row) -> None:
        if row.is_over and self._of.get(name) is row:
            del self._of[name]

    # ---- who waits

    def closed(self, name: str) -> asyncio.Future[None]:
        """Done when all is that is being closed under this name now, "": under all.

        The log says once what is waited for so long.  Refusals are told as long as they hold, whoever was told before:
        nobody here knows whose memory it is.  But when somebody was told, and a region of that name is registered, only
        who waits already is told still.  Raises TisError, later.
        """
        self._look_at(name)
        row = self._of.get(name, _Row()) if name else self._all
        closed = row.until(self._number)
        told = asyncio.ensure_future(self._closed(row, self._number, closed))
        self._waiting.add(told)
        told.add_done_callback(partial(self._over, name, row, closed))
        return told

    def _over(self, name: str, row: _Row, closed: asyncio.Future[None], told: asyncio.Future[None]) -> None:
        """Who waited was told, or has left."""
        row.waiting.pop(closed, None)
        self._tidy(name, row)
        self._waiting.discard(told)
        self._begun.discard(told)
        self._forget_leaving()

    def end(self) -> None:
        """The server ends, and its connections wait for the answers: who waits is told so."""
        self._is_ended = True
        for each in self._begun:
            each.cancel()

    async def _closed(self, row: _Row, number: int, closed: asyncio.Future[None]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._begun.add(task)
        begun = time.monotonic()
        is_late = await self._is_late(closed, begun + limits.GPU_TOLD_SECONDS)
        if is_late and not self._is_ended:
            if number > row.logged:
                row.logged = number
                await self._outcome(asyncio.ensure_future(self._log(begun, row, number)))
            is_late = await self._is_late(closed, begun + limits.GPU_REGION_SECONDS_MAX)
        if is_late or row.refused:
            when = _When.CLOSED if not is_late else _When.END if self._is_ended else _When.LATE
            error = await self._found(begun, row, number, when)
            if error is not None:
                raise type(error)(error.message)

    async def _is_late(self, closed: asyncio.Future[None], until: float) -> bool:
        """Whether something is not closed by then, time.monotonic(), or when the server ends."""
        if not closed.done():
            left = max(until - time.monotonic(), 0)
            if self._is_ended:
                left = min(left, limits.GPU_REGION_END_SECONDS)
            try:
                await asyncio.wait({closed}, timeout=left)
            except asyncio.CancelledError:
                if not self._is_ended:
                    raise
        return not closed.done()

    async def _outcome(self, work: asyncio.Future[_Made]) -> _Made:
        """What others may wait for, too.  Who is told something is told it also where the server ends meanwhile."""
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError:
                if not self._is_ended:
                    raise
        return work.result()

    # ---- what they are told

    async def _log(self, begun: float, row: _Row, number: int) -> None:
        """What takes long and the log does not have yet, for who has waited since `begun`."""
        told = Told()
        unlogged = (each for each in row.late(number) if not each.is_logged)
        async with self._turn:
            await _in_slices(self._ask(unlogged, self._looked(begun).uses, told, logs=True))
        if told.late:
            log.warning("%s", told.within(limits.GPU_TOLD_SECONDS))

    async def _found(self, begun: float, row: _Row, number: int, when: _When) -> TisError | None:
        """What who has waited since `begun` is told."""
        look, which = self._looked(begun), (row, number, when)
        if which not in look.told:
            look.told[which] = asyncio.ensure_future(self._make(look, row, number, when))
        return await self._outcome(look.told[which])

    def _looked(self, begun: float) -> _Look:
        """A look that was begun behind that, and within the last second."""
        if not begun < self._look.begun <= time.monotonic() <= self._look.begun + _LOOK_SECONDS:
            self._look = _Look()
        return self._look

    async def _make(self, look: _Look, row: _Row, number: int, when: _When) -> TisError | None:
        told = Told()
        late = row.late(number) if when is not _When.CLOSED else ()
        async with self._turn:
            await _in_slices(self._ask(late, look.uses, told))
            await _in_slices(self._ask_refused(row, number, told))
        text = "" if not told.late else told.to_the_end if when is _When.END else told.to_wait
        if not text and not told.refused:
            return None
        kind = Unavailable if text else Internal
        return kind(told.behind(text, is_of_all=row is self._all))

    def _ask(self, late: Iterable[Closing], uses: Uses, told: Told, *, logs: bool = False) -> Iterator[None]:
        for batch in list(self._batches):
            while self._look_at_next(batch):
                yield
        for each in late:
            yield from each.walk(uses)
            if not each.done.done():
                told.wait(each.name, each.waits(uses), each.lingering())
                each.is_logged |= logs
            yield

    def _ask_refused(self, row: _Row, number: int, told: Told) -> Iterator[None]:
        for each in list(row.refused):
            if each.number <= number < each.over:
                if refusals := each.refusals:
                    told.refuse(each.name, refusals)
                    self._tell(each)
                else:
                    self._forget(each)
            yield


async def _in_slices(pieces: Iterator[None]) -> None:
    """Others have their turn behind it, too: many may wait for such work of their own."""
    made = in_slices(pieces, len, tuning.LOOP_SLICE_SECONDS)
    await (made if asyncio.isfuture(made) else asyncio.sleep(0))
