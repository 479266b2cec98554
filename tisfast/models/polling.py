"""Keep the served models like the repositories.  Layer 4 (models)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tisfast import limits
from tisfast.errors import TisError
from tisfast.models.retry_schedule import RetrySchedule
from tisfast.repo.changes import Changes, Look, Looker

if TYPE_CHECKING:
    from tisfast.config.settings import RepositorySettings

log = logging.getLogger("tisfast.models")
Before: TypeAlias = Callable[[], Coroutine[Any, Any, Mapping[str, TisError]]]
Tell: TypeAlias = Callable[[Collection[str]], None]


class ChangeTarget(Protocol):
    """The target of changes: the lifecycle."""

    @property
    def failing(self) -> Collection[str]:
        """Models whose last load failed while it was under way: another attempt may succeed."""

    async def together(self, names: Iterable[str]) -> Collection[Collection[str]]:
        """The names in groups of what depends on each other."""

    async def apply(self, names: Collection[str]) -> Mapping[str, object]:
        """Load what is new or has changed, unload what is gone; of one group.  Returns what failed."""


class LookSource(Protocol):
    """Looks at the repositories; see repo.changes.Looker."""

    def look(self, names: Collection[str] | None = None) -> Look:
        """All models, or some of them.  Takes its time."""


@dataclass(frozen=True)
class PollIntervals:
    """Seconds.  poll: between two looks at everything; settle: between two looks at a model that has changed.

    tries_again: what failed to load is loaded again although nothing has changed.
    """

    poll: float
    settle: float
    tries_again: bool = True

    @classmethod
    def of(cls, settings: RepositorySettings) -> PollIntervals | None:
        """That of the settings; None when nothing is looked at again."""
        if settings.watch:
            return cls(limits.RELOAD_LOOK_SECONDS, limits.RELOAD_SETTLE_SECONDS, tries_again=False)
        if settings.control_mode == "poll" and settings.poll_seconds > 0:
            return cls(settings.poll_seconds, min(settings.poll_seconds, limits.POLL_SETTLE_SECONDS_MAX))
        return None


async def _nothing() -> Mapping[str, TisError]:
    """All repositories are local."""
    return {}


def _nobody(_names: Collection[str]) -> None:
    """Tell nothing."""


class Polling:
    """Looks at the repositories again and again.  Event-loop thread only; what reads the disk runs in a thread.

    before: awaited before each look at everything: remote repositories are brought up to date there; returns the models
    of which that failed.  Where that takes long (a large model, a dead store), what is there is looked at meanwhile.
    tell: told which models there are, after each look at everything.
    """

    def __init__(  # noqa: PLR0913 - whom it tells what
        self,
        lifecycle: ChangeTarget,
        looker: LookSource,
        pace: PollIntervals,
        clock: Callable[[], float],
        before: Before = _nothing,
        tell: Tell = _nobody,
    ) -> None:
        self._lifecycle = lifecycle
        self._looker = looker
        self._pace = pace
        self._clock = clock
        self._before = before
        self._tell = tell
        self._changes = Changes(Look({}, {}))
        self._again = RetrySchedule(max(1, round(limits.POLL_RETRY_SECONDS_MAX / pace.poll)))
        self._left: set[str] = set()  # changes that could not even be tried
        self._lost: Mapping[Path, str] = {}
        self._behind: Mapping[str, str] = {}  # why models ("": repositories) could not be brought up to date
        self._full_at = 0.0
        self._busy: set[str] = set()
        self._applying: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._fetching: asyncio.Future[Mapping[str, TisError]] | None = None

    async def begin(self) -> None:
        """See what is there before the models are loaded for the first time: what changes from now on is noticed."""
        self._changes = Changes(await self._look(None))
        self._full_at = self._clock() + self._pace.poll

    def start(self) -> None:
        """Look again and again from now on, until `close`."""
        self._task = asyncio.ensure_future(self._run())

    async def applied(self) -> None:
        """Wait until all that was given to the lifecycle is applied."""
        while self._applying:
            await asyncio.gather(*self._applying)

    async def close(self) -> None:
        """Look no more; what is being applied is left off."""
        others = [task for task in (self._task, self._fetching) if task is not None]
        tasks: list[asyncio.Future[Any]] = [*self._applying, *others]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def step(self) -> float:
        """One look; what has changed and rests is applied beside it.  Returns the seconds until the next look."""
        names = self._changes.moving or None
        if self._clock() >= self._full_at:
            names = None
        if names is None:
            self._full_at = self._clock() + self._pace.poll
        look = await self._look(names)
        changed = self._changes.take(look, names, self._busy)
        self._again.forget(changed)
        if changed:
            self._begin_to_apply(changed)
        if names is None:
            self._tell(self._changes.names)
            self._try_again(look)
        if self._changes.moving:
            return self._pace.settle
        return max(self._full_at - self._clock(), self._pace.settle)

    async def _run(self) -> None:
        seconds = max(self._full_at - self._clock(), 0.0)
        while True:
            await asyncio.sleep(seconds)
            try:
                seconds = await self.step()
            except Exception:  # a bug of ours must not end the watch over all models
                log.exception("looking at the model repositories failed; the next look is in %g s", self._pace.poll)
                seconds = self._pace.poll

    async def _look(self, names: Collection[str] | None) -> Look:
        if names is None:
            await self._prepare()
        look = await asyncio.to_thread(self._looker.look, names)
        self._tell_lost(look.lost)
        return look

    async def _prepare(self) -> None:
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(self._before())
        done, _ = await asyncio.wait({self._fetching}, timeout=self._pace.settle)
        if not done:
            return
        fetched, self._fetching = self._fetching, None
        try:
            behind = {name: str(error) for name, error in fetched.result().items()}
        except TisError as error:
            behind = {"": str(error)}
        for name, reason in behind.items():
            if self._behind.get(name) != reason:
                what = f"model '{name}'" if name else "a model repository"
                log.error("%s cannot be brought up to date, and stays as it is: %s", what, reason)
        self._behind = behind

    def _tell_lost(self, lost: Mapping[Path, str]) -> None:
        for repository, reason in lost.items():
            if repository not in self._lost:
                log.error("failed to poll model repository '%s': %s; its models stay as they are", repository, reason)
        for repository in self._lost:
            if repository not in lost:
                log.info("model repository '%s' is there again", repository)
        self._lost = lost

    def _begin_to_apply(self, changed: Mapping[str, str]) -> None:
        for name, words in changed.items():
            log.info("model '%s' has changed: %s", name, words, extra={"facts": {"model": name}})
        self._begin(changed)

    def _try_again(self, look: Look) -> None:
        """Load again the failed models whose turn has come, unless they are loading or changing.

        Not while a repository is away: what lies there would be taken to be gone.
        """
        if look.lost:
            return
        failed = self._left | set(self._lifecycle.failing if self._pace.tries_again else ())
        due = self._again.due(failed, self._busy | self._changes.moving)
        if due:
            log.info("what could not be loaded is tried again: %s", ", ".join(sorted(due)))
            self._begin(due)

    def _begin(self, names: Iterable[str]) -> None:
        wanted = frozenset(names)
        self._left -= wanted
        self._busy |= wanted
        self._spawn(self._apply_all(wanted))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._applying.add(task)
        task.add_done_callback(self._applying.discard)

    async def _apply_all(self, names: Collection[str]) -> None:
        """Each group by itself: only dependents wait for a model that loads slowly, or never."""
        try:
            groups = await self._lifecycle.together(names)
        except Exception:  # as above
            log.exception("changes of %s could not be applied", ", ".join(sorted(names)))
            self._busy.difference_update(names)
            self._left.update(names)
            return
        for group in groups:
            self._spawn(self._apply(group))

    async def _apply(self, names: Collection[str]) -> None:
        began = self._clock()
        try:
            failed = await self._lifecycle.apply(names)
        except Exception:  # as above
            log.exception("changes of %s could not be applied", ", ".join(sorted(names)))
            self._left.update(names)
            return
        finally:
            self._busy.difference_update(names)
        seconds = self._clock() - began
        for name in sorted(set(names) - failed.keys()):
            log.info("model '%s' is up to date after %.2f s", name, seconds, extra={"facts": {"model": name}})


def polling_of(  # noqa: PLR0913, PLR0917 - as above
    settings: RepositorySettings,
    paths: Sequence[Path],
    lifecycle: ChangeTarget,
    clock: Callable[[], float],
    before: Before,
    tell: Tell,
) -> Polling | None:
    """The polling that the settings ask for, None if for none.  paths: looked at; before, tell: see Polling."""
    pace = PollIntervals.of(settings)
    if pace is None:
        return None
    looker = Looker(
        paths, namespaces=settings.namespacing, config_name=settings.config_name, backends=settings.backends
    )
    return Polling(lifecycle, looker, pace, clock, _nothing if settings.watch else before, tell)
