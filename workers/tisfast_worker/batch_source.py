"""Batches as the server submits them: taken from the ring in order, claimed, or passed over when it took them back.

The head of the ring advances before anything executes: after a crash the server knows what was taken.
"""

from tisfast_worker import limits
from tisfast_worker.failure import WireError
from tisfast_worker.native import SLOT_BYTES, SUBMIT_SLOT, TF_EXEC

FOR_EVER = -1  # nanoseconds


class BatchSource:
    """The submit ring of one instance."""

    def __init__(self, plane, spin_ns):
        """spin_ns: how long to yield before sleeping."""
        self._channel, self._library, self._completions = plane.channel, plane.library, plane.completions
        self._wait, self._begin, self._spin_ns = plane.library.tf_worker_wait, plane.library.tf_submit_begin, spin_ns
        self._slots = plane.channel.raw.fields(SUBMIT_SLOT)
        self._head = 0  # slots taken

    def run(self, serve, tidy):
        """Until stop is set and the ring is empty.

        serve(slots): executes a batch; tidy(): the instance is idle, and may sleep for so many nanoseconds.
        """
        wait, base, rest_ns = self._wait, self._channel.base, limits.REST_SECONDS * 1000000000
        while True:
            pending = wait(base, self._spin_ns, rest_ns)
            while pending == 0:  # idle for a while, or told to stop
                pending = wait(base, 0, tidy())
                if pending == 0 and self._channel.stopping:
                    pending = wait(base, 0, 0)  # what was submitted before the stop is seen with it
                    if pending == 0:
                        return
            while pending:
                pending -= self.serve(pending, serve)

    def serve(self, pending, serve):
        """Execute the next of the pending batches, unless the server has taken it back; returns its slots."""
        slots = self._next(pending)
        if self._begin(self._channel.base, len(slots)):
            serve(slots)
        else:
            self._completions.ring_bell()  # there is room for others
        return len(slots)

    def pending(self):
        """Slots that wait."""
        return self._library.tf_ring_pending(self._channel.submit)

    def _next(self, pending):
        (mask, first), head = self._channel.submit_slots, self._head
        slot = self._slots.read(first + (head & mask) * SLOT_BYTES)
        slots = [slot]
        count = slot[2] + 1
        if count > pending or slot[0] != TF_EXEC:
            raise WireError(f"a batch of {count} slots of kind {slot[0]}, but {pending} are published")
        for at in range(head + 1, head + count):
            slots.append(self._slots.read(first + (at & mask) * SLOT_BYTES))
        self._head = head + count
        return slots
