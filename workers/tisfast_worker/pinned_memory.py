"""The parts of an instance's arenas that its GPU copies from and to by itself: memory that is pinned for CUDA.

Only what tensors lie in is registered, in pieces, and only in a process that uses CUDA anyway.  The driver refuses
copies from and to memory that is registered in part (cuMemcpyHtoDAsync, CUDA_ERROR_INVALID_VALUE).  So no tensor may
reach over the end of a piece: one that would takes the pieces away, and they come back as one, if at all.

Pages that are pinned must not be given back to the system: the GPU would go on using them, and all others new ones.  So
an idle instance lets go of all before it trims its output arena, and the server, which is asked first, trims no input
arena of which a worker has pinned something (WIRE.md, Pinned memory).
"""

import contextlib
import math
from bisect import bisect_left, bisect_right

from tisfast_worker import cuda, limits
from tisfast_worker.control_messages import ControlClosed
from tisfast_worker.foreign_memory import SHARE_SHIFT
from tisfast_worker.serving_context import current

_PLAIN = (
    "tensors of {} are copied to and from its GPU more slowly, without pinned memory: the driver refuses to register "
    "{} bytes ({})"
)
_STAYS = (
    "{} bytes of host memory of {} stay pinned: the driver does not unregister them ({}). It is tried again when the "
    "instance is idle; until then it pins no more, and their pages are not given back to the system"
)
_FULL = "some tensors of {} are copied to and from its GPU more slowly, without pinned memory: {}"


class PinnedMemory:
    """The pinned pieces of an instance's arenas.

    The loop's thread, or the thread that holds the publisher's lock.  A process that dies lets go of all; children that
    a model forks have the arenas shared, not copied, so that pinned pages stay what both see.
    """

    def __init__(self, plane):
        """Nothing is pinned before the process uses CUDA."""
        self._in, self._out = _Pieces(self, plane.inputs), _Pieces(self, plane.outputs)
        self._is_on = self._is_given_up = self._is_stuck = False
        self._large = 0  # large tensors that came before it was on
        self._granted, self._refused = 0, math.inf  # bytes that the server has agreed to, and those that it has not

    def cover_requests(self, requests):
        """These are executed next: each tensor of theirs in the input arena is in a piece now, or in plain memory.

        Returns whether any is in a piece.
        """
        parts = []
        for request in requests:
            refs = request._refs
            for at in range(0, len(refs), 2):
                if not refs[at] >> SHARE_SHIFT:  # else it is in other memory
                    parts.append((refs[at], refs[at] + refs[at + 1]))
        self._in.cover(parts)
        return self._in.touched_by(parts)

    def cover_inputs(self, parts):
        """The same for parts of the input arena: (begin, end) of each."""
        self._in.cover(parts)

    def cover_outputs(self, parts):
        """The same for parts of the output arena."""
        self._out.cover(parts)

    def rest(self):
        """The instance is idle: let go of all."""
        if self._granted:
            self.end()
            if self.stays:
                return  # the server knows, and gives no page of the input arena back
            self._is_stuck = False
            self._give_back()
        self._refused = math.inf

    @property
    def stays(self):
        """Bytes that are pinned."""
        return self._in.nbytes + self._out.nbytes

    def left(self, nbytes, reason):
        """So many bytes could not be unregistered: told once."""
        self._is_stuck = True
        current().log("WARN", _STAYS.format(nbytes, current().whose, reason), "pinned_memory.py", 0, "stays pinned")

    def end(self):
        """Let go of all, for good."""
        self._in.drop_all()
        self._out.drop_all()

    def is_on(self):
        """Whether large tensors shall be pinned.

        A model may begin to use CUDA at any time, so it is looked at again at the 1st, 2nd, 4th, 8th ... of them.
        """
        if not self._is_on:
            self._large += 1
            self._is_on = self._large & (self._large - 1) == 0 and cuda.is_in_use()
        return self._is_on

    def register(self, address, nbytes):
        """Whether it is pinned now."""
        wanted = self._in.nbytes + self._out.nbytes + nbytes
        if self._is_given_up or self._is_stuck or (wanted > self._granted and not self._is_granted(wanted)):
            return False
        try:
            cuda.pin(address, nbytes)
        except cuda.CudaError as error:
            self._is_given_up = True
            self._give_back()
            current().log("WARN", _PLAIN.format(current().whose, nbytes, error), "pinned_memory.py", 0, "unpinned")
            return False
        return True

    def _give_back(self):
        """What the server has agreed to, and is not pinned, is for others."""
        self._granted = self.stays
        ask = current().ask
        with contextlib.suppress(ControlClosed):  # the server ends
            if ask is not None:
                ask({"t": "pin", "bytes": self._granted})

    def _is_granted(self, wanted):
        if wanted >= self._refused:
            return False
        try:
            answer = current().ask({"t": "pin", "bytes": wanted})
        except ControlClosed as error:
            answer = {"error": str(error)}
        if "error" in answer:
            self._refused = wanted
            current().log("INFO", _FULL.format(current().whose, answer["error"]), "pinned_memory.py", 0, "full")
            return False
        self._granted = wanted
        return True


class _Pieces:
    """The pinned pieces of one arena, none of which overlap."""

    def __init__(self, pinned, mapping):
        """`pinned`: the PinnedMemory; `mapping`: the arena, a Mapping."""
        self._pinned, self._base, self._end = pinned, mapping.base, mapping.nbytes
        self._begins, self._ends = [], []  # offsets, in order
        self.nbytes = 0  # of all

    def cover(self, parts):
        """Each of these parts, which are (begin, end), is all in one piece when this returns, or touches none.

        What one part gets may touch another one, so all are looked at again.
        """
        for _ in range(limits.PIN_PASSES_MAX):
            if not [True for begin, end in parts if self._is_changed_for(begin, end)]:
                return
        self.drop_all()

    def touched_by(self, parts):
        """Whether any of these parts touches a piece."""
        return bool(self._begins) and any(self._touched(begin, end) for begin, end in parts)

    def drop_all(self):
        """No pieces any more."""
        self._drop(0, len(self._begins))

    def _is_changed_for(self, begin, end):
        """Give a part a piece, if it shall have one: whether any piece is another one than before."""
        at = bisect_right(self._begins, begin) - 1
        if at >= 0 and end <= self._ends[at]:
            return False
        if self._touched(begin, end):
            return self._replace(begin, end) is not None
        return end - begin >= limits.PIN_BYTES_MIN and self._pinned.is_on() and self._replace(begin, end)

    def _touched(self, begin, end):
        """The pieces that a part touches: first, and behind the last; () for none."""
        first, last = bisect_right(self._ends, begin), bisect_left(self._begins, end)
        return (first, last) if first < last else ()

    def _replace(self, begin, end):
        """One piece in place of those that a part touches: whether it could be had; None: they stay.

        Its bounds are multiples of an eighth of the part, so that parts of a growing size soon find it large enough.
        """
        step = max(limits.PIN_STEP_BYTES, 1 << max((end - begin).bit_length() - 4, 0))
        begin, end = begin & -step, min((end + step - 1) & -step, self._end)
        touched = self._touched(begin, end)
        if touched:
            first, last = touched
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
            if not self._drop(first, last):
                return None
        if not self._pinned.register(self._base + begin, end - begin):
            return False
        at = bisect_left(self._begins, begin)
        self._begins.insert(at, begin)
        self._ends.insert(at, end)
        self.nbytes += end - begin
        return True

    def _drop(self, first, last):
        """Whether none of these is left."""
        if first == last:
            return True
        left = cuda.unpin([self._base + begin for begin in self._begins[first:last]])
        stay = [at for at in range(first, last) if self._base + self._begins[at] in left]
        begins, ends = [self._begins[at] for at in stay], [self._ends[at] for at in stay]
        if stay:
            self._pinned.left(sum(ends) - sum(begins), next(iter(left.values())))
        self.nbytes += sum(ends) - sum(begins) - (sum(self._ends[first:last]) - sum(self._begins[first:last]))
        self._begins[first:last], self._ends[first:last] = begins, ends
        return not stay


class PinningReader:
    """Around a BatchReader, for instances on a GPU: inputs are pinned before the model sees them."""

    def __init__(self, reader, pinned):
        """`pinned`: the PinnedMemory."""
        self._reader, self._pinned = reader, pinned

    def read(self, slots, execution):
        """See BatchReader.read."""
        requests = self._reader.read(slots, execution)
        execution.on_gpu = self._pinned.cover_requests(requests) or execution.on_gpu
        return requests
