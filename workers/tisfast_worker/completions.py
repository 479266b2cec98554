"""The complete ring: answers from the loop, releases from whatever thread drops the last reference to an input."""

import struct
import threading
import time
import weakref
from collections import deque

from tisfast_worker import limits
from tisfast_worker.failure import WireError
from tisfast_worker.native import COMPLETE_SLOT, TF_RELEASE

_RELEASE_FIELDS = (0,) * 7


class Completions:
    """Producer of the complete ring.  The ring has one producer: whoever holds the lock.

    A release may come at any instruction, from the loop's own thread too (a finaliser), so it never waits for the
    lock: it queues itself, then tries the lock; the holder looks at the queue after letting go.  Either way one of the
    two sees it.
    """

    def __init__(self, library, channel, bell, bell_fd):
        """`bell` is the bell page's Mapping, `bell_fd` the server's eventfd."""
        self._reserve, self._publish, self._ring_bell = (
            library.tf_ring_reserve,
            library.tf_ring_publish,
            library.tf_bell_ring,
        )
        self._channel, self._ring = channel.base, channel.complete
        self._memory = channel.memory
        self._bell, self._bell_fd = bell.base, bell_fd
        self._written = 0  # slots written, not published
        self._lock = threading.Lock()
        self._releases = deque()
        self._retained = {}  # id(weak reference): (weak reference, ticket)

    def put(self, *fields):
        """Write one slot (struct tf_complete_slot); `flush` shows it.  Loop's thread only.

        Waits, bounded, while the ring is full.
        """
        with self._lock:
            self._put(fields)

    def flush(self):
        """Make written slots visible and ring the server if it sleeps.  Loop's thread only."""
        with self._lock:
            self._show()
        if self._releases:
            self._send_releases()

    def release_when_gone(self, lease, ticket):
        """Send TF_RELEASE for this request when nobody refers to `lease` any more."""
        reference = weakref.ref(lease, self._gone)
        self._retained[id(reference)] = (reference, ticket)

    def _gone(self, reference):
        self._releases.append(self._retained.pop(id(reference))[1])
        self._send_releases()

    def _send_releases(self):
        while self._releases and self._lock.acquire(blocking=False):
            try:
                self._put_releases()
            finally:
                self._lock.release()
            if self._releases:
                return  # the ring is full: the loop's next flush takes them along

    def _put_releases(self):
        while self._releases:
            slot = self._reserve(self._channel, self._ring, self._written)
            if not slot:
                break
            ticket = self._releases.popleft()
            COMPLETE_SLOT.pack_into(self._memory, slot - self._channel, TF_RELEASE, 0, 0, 0, ticket, *_RELEASE_FIELDS)
            self._written += 1
        self._show()

    def _put(self, fields):
        slot = self._reserve(self._channel, self._ring, self._written)
        if not slot:
            slot = self._wait_slot()
        COMPLETE_SLOT.pack_into(self._memory, slot - self._channel, *fields)
        self._written += 1

    def _show(self):
        if self._written:
            self._publish(self._ring, self._written)
            self._written = 0
            self._ring_bell(self._bell, self._bell_fd)

    def _wait_slot(self):
        """The ring holds four times what submit does, so this needs a server that has stopped reading."""
        self._show()
        deadline = time.monotonic() + limits.OUTPUT_WAIT_SECONDS_MAX
        while time.monotonic() < deadline:
            slot = self._reserve(self._channel, self._ring, 0)
            if slot:
                return slot
            time.sleep(limits.OUTPUT_WAIT_STEP_SECONDS_MAX)
        raise WireError(f"the server took no answer for {limits.OUTPUT_WAIT_SECONDS_MAX} s")


def lease_type(nbytes):
    """The type of a lease on the input arena: what all of a request's tensors and arrays refer to.

    numpy takes it as the buffer of its arrays (a memoryview it would look through, to the object behind), and a
    subclass of a ctypes array can be referred to weakly.
    """
    import ctypes  # noqa: PLC0415

    return type("Lease", (ctypes.c_char * nbytes,), {})


assert COMPLETE_SLOT.size == 64, struct.calcsize(COMPLETE_SLOT.format)
