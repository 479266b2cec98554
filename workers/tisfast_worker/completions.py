"""The complete ring: answers from the loop, releases from whatever thread drops the last reference to an input."""

import ctypes
import threading
import time
import weakref
from collections import deque

from tisfast_worker import cuda, limits
from tisfast_worker.failure import WireError
from tisfast_worker.native import COMPLETE_SLOT, SLOT_BYTES, TF_FINAL, TF_RELEASE, TF_RETAINED
from tisfast_worker.serving_context import current

_NO_TIMES = (0,) * 4
_KEPT = (
    "memory of {} that the GPU may still read stays in use, and is looked at again behind the next batch or after 10 "
    "s: {}"
)


class Completions:
    """Producer of the complete ring.  The ring has one producer: the thread that holds the lock.

    What finalisers have to say (a release, a lost stream) may come at any instruction, from the loop's own thread too,
    so it never waits for the lock: it queues itself, then tries the lock; the holder looks at the queue after letting
    go.  Either way one of the two sees it.
    """

    def __init__(self, library, channel, bell, bell_fd):
        """`bell` is where the bell page is mapped, `bell_fd` the server's eventfd."""
        self._reserve, self._publish = library.tf_ring_reserve, library.tf_ring_publish
        self._ring_bell = library.tf_bell_ring
        self._channel, self._ring = channel.base, channel.complete
        self._slots = channel.raw.fields(COMPLETE_SLOT)
        self._mask, self._first = channel.complete_slots
        self._bell, self._bell_fd = bell, bell_fd
        self._tail = 0  # slots written
        self._room = 0  # slots known to be free: the ring is asked again only when they are used up
        self._lock = threading.Lock()
        self._acquire, self._release = self._lock.acquire, self._lock.release  # `with` costs twice as much
        self._posted = deque()  # (kind, flags, status, ticket): slots without block and times
        self._retained = {}  # id(weak reference): (weak reference, ticket)
        self._closed = False
        self._nudge = library.tf_worker_nudge
        self.behind_gpu = deque()  # (kind, flags, status, ticket), posted when the GPU has done what is queued
        self._settling = threading.RLock()  # of who takes from them
        self._is_settling = False
        self.loop_thread = 0  # it settles them, at the latest
        self.is_nudged = False  # the loop was woken for them

    def close(self):
        """Nothing is said any more: of an instance that ends before its process.  What was sent stays sent."""
        with self._lock:
            self._closed, self._room = True, 0
        self._posted.clear()

    def leave_child(self):
        """In a child process that the model's code has made: the ring is not its own, and the lock may be held."""
        self._closed, self._room = True, 0

    def send(self, answers, tickets, retained, times, batch):
        """Write the answers of one batch, show them at once, and ring the server if it sleeps.  Loop's thread only.

        answers: (kind, status, meta_bytes, block) each; tickets: of their requests, and perhaps of more; retained:
        whether the model holds on to the request's memory; times: the batch's four; batch: requests executed, told
        with the first answer.
        Waits, bounded, while the ring is full.
        """
        unseen = 0
        self._acquire()
        try:
            for at, answer in enumerate(answers):
                if not self._room and not self._find_room(unseen):
                    self._show(unseen)
                    unseen = 0
                    self._wait_for_room()
                self._write(answer, tickets[at], TF_FINAL | TF_RETAINED if retained[at] else TF_FINAL, times, batch)
                unseen += 1
                batch = 0
            self._show(unseen)
        finally:
            self._release()
        if self._posted:
            self._send_posted()

    def put(self, answer, ticket, flags, times, batch):
        """Write and show one slot, from any thread; arguments as of `send`.  Waits, bounded, while the ring is full."""
        with self._lock:
            if not self._room and not self._find_room(0):
                self._wait_for_room()
            self._write(answer, ticket, flags, times, batch)
            self._show(1)
        if self._posted:
            self._send_posted()

    def post(self, kind, flags, status, ticket):
        """Queue a slot without a block, from finalisers too: never waits."""
        if self._closed:
            return
        self._posted.append((kind, flags, status, ticket))
        self._send_posted()

    def post_behind_gpu(self, kind, ticket):
        """Queue a slot that is to be sent when the GPU has done what is queued there: `settle_gpu` does so.

        From finalisers, too, and so it does not wait itself: a model may be capturing a CUDA graph at that moment, and
        waiting for the device fails then and breaks the capture (cuCtxSynchronize, error 900).
        """
        if self._closed:
            return
        self.behind_gpu.append((kind, 0, 0, ticket))
        if threading.get_ident() != self.loop_thread:  # else the loop comes to it by itself
            self.is_nudged = True
            self._nudge(self._channel)

    def take_nudge(self):
        """Whether the loop was woken for what waits for the GPU since this was last asked.  The loop's thread."""
        was, self.is_nudged = self.is_nudged, False
        return was

    def settle_gpu(self):
        """Send what waits for the GPU; whether all of it is sent.

        The loop's thread between two executions, or a thread of the model's that asks or waits for something.  Never a
        finaliser of ours.  Raises DeviceLost.
        """
        if not self.behind_gpu:
            return True
        with self._settling:
            if self._is_settling:
                return False  # a finaliser of the model's sends or calls, in the middle of it
            self._is_settling = True
            try:
                if not self._take_settled():
                    return False
            finally:
                self._is_settling = False
        self._send_posted()
        return True

    def _take_settled(self):
        """Post what waits for the GPU now, when that is done."""
        waiting = self.behind_gpu
        count = len(waiting)
        try:
            cuda.wait(0)
        except cuda.DeviceLost:
            raise  # all of it goes with the process
        except cuda.GpuFailed as error:  # the GPU may still read it: nobody else may have it yet
            current().log("WARN", _KEPT.format(current().whose, error), "completions.py", 0, "kept")
            return False
        for _ in range(count):
            self._posted.append(waiting.popleft())
        return True

    def flush(self):
        """Send what was posted while the ring was full."""
        if self._posted:
            self._send_posted()

    def ring_bell(self):
        """Have the server look at the rings."""
        with self._lock:
            if not self._closed:
                self._ring_bell(self._channel, self._bell, self._bell_fd)

    def release_when_gone(self, lease, ticket, on_gpu=False):
        """Send TF_RELEASE for this request when nothing refers to `lease` any more; on_gpu: and when the GPU, where
        inputs lie, has done what was queued there until then.
        """
        lease.ticket = ticket  # for calls that pass its tensors on
        reference = weakref.ref(lease, self._gone_on_gpu if on_gpu else self._gone)
        self._retained[id(reference)] = (reference, ticket)

    def _gone_on_gpu(self, reference):
        self.post_behind_gpu(TF_RELEASE, self._retained.pop(id(reference))[1])

    def _gone(self, reference):
        self.post(TF_RELEASE, 0, 0, self._retained.pop(id(reference))[1])

    def _send_posted(self):
        while self._posted and self._lock.acquire(blocking=False):
            try:
                full = self._put_posted()
            finally:
                self._lock.release()
            if full:
                return  # the ring is full: the next answer takes them along

    def _put_posted(self):
        """Write what was posted; True when the ring was too full for all of it."""
        unseen, full = 0, False
        while self._posted:
            if not self._room and not self._find_room(unseen):
                full = True
                break
            kind, flags, status, ticket = self._posted.popleft()
            self._write((kind, status, 0, 0), ticket, flags, _NO_TIMES, 0)
            unseen += 1
        self._show(unseen)
        return full

    def _write(self, answer, ticket, flags, times, batch):
        """Fill the next slot, for which there is room."""
        kind, status, nbytes, block = answer
        taken, start, end, done = times
        at = self._first + (self._tail & self._mask) * SLOT_BYTES
        self._slots.write(at, (kind, flags, status, nbytes, ticket, block, taken, start, end, done, batch, 0))
        self._tail += 1
        self._room -= 1

    def _find_room(self, unseen):
        """Ask the ring for free slots behind the `unseen` written ones: many if there are many, else one."""
        if self._closed:
            return False
        for ahead in (self._mask >> 1, 0):
            if self._reserve(self._channel, self._ring, unseen + ahead):
                self._room = ahead + 1
                return True
        return False

    def _show(self, unseen):
        if unseen:
            self._publish(self._ring, unseen)
            self._ring_bell(self._channel, self._bell, self._bell_fd)

    def _wait_for_room(self):
        """The ring holds four times what submit does, so this needs a server that has stopped reading."""
        deadline = time.monotonic() + limits.OUTPUT_WAIT_SECONDS_MAX
        while not self._find_room(0):
            if self._closed:
                raise WireError("this instance is served no more")
            if time.monotonic() > deadline:
                raise WireError(f"the server took no answer for {limits.OUTPUT_WAIT_SECONDS_MAX} s")
            time.sleep(limits.OUTPUT_WAIT_STEP_SECONDS_MAX)


def lease_type(nbytes):
    """The type of a lease on the input arena: what all of a request's tensors and arrays refer to.

    numpy takes it as the buffer of its arrays (a memoryview it would look through, to the object behind), and a
    subclass of a ctypes array can be referred to weakly.
    """
    return type("Lease", (ctypes.c_char * nbytes,), {})
