"""The reply ring: who reads it, and who is told (WIRE.md, Calls).

Any thread may wait for an answer.  The first one that does reads the ring for all of them; when it has what it waits
for, the next one does.  So a model that calls from one thread, as most do, never changes threads.  Coroutines cannot
read: while one waits, a thread of ours does.
"""

import contextlib
import queue
import threading
from collections import deque

from tisfast_worker.native import REPLY_SLOT, SLOT_BYTES, TF_FINAL

_LOOK_NS = 1000000000  # the longest wait at one time: what ends the instance rings no bell


class Waiting:
    """The responses that have come for one call.  A waiting thread is woken when more come.

    `final`: no more will come; `arrived`: responses that nobody has taken.
    """

    __slots__ = ("__weakref__", "arrived", "final", "loop", "number", "on_news", "turn")

    def __init__(self, number, loop=None, on_news=None):
        """loop: of the coroutine that waits, which `on_news` is called in; None: threads wait."""
        self.number, self.loop, self.on_news = number, loop, on_news
        self.arrived = deque()
        self.final = False
        self.turn = None  # held while a thread waits that is not the one that reads


class Replies:
    """Consumer of the reply ring."""

    def __init__(self, plane, spin_ns, read, release):
        """`read(kind, status, bytes, offset, answer, told)`: makes a response of a slot, in the order of the ring;
        `release(answer)`: lets the memory of one go that nobody waits for.
        """
        library = plane.library
        self._channel, self._memory = plane.channel.base, plane.channel.memory
        self._mask, self._first = plane.channel.reply_slots
        self._pending, self._took, self._wait = library.tf_ring_pending, library.tf_reply_took, library.tf_reply_wait
        self._ring, self._ring_bell = plane.channel.reply, plane.completions.ring_bell
        self._spin_ns, self._read, self._release = spin_ns, read, release
        self._head = 0  # slots taken
        self._calls = {}  # number: Waiting, of calls that are not over
        self._lock = threading.Lock()
        self._led = False  # some thread reads
        self._threads = deque()  # Waiting of threads that wait for their turn
        self._coroutines = set()  # numbers of calls that coroutines made and that are not over
        self._wanted = None  # queue that wakes the thread that reads for them
        self._closed = False

    @property
    def open_calls(self):
        """Calls that are not over."""
        return len(self._calls)

    def open(self, waiting):
        """A call is about to be made."""
        with self._lock:
            self._calls[waiting.number] = waiting
            if waiting.loop is not None:
                self._coroutines.add(waiting.number)
                self._want_reader()

    def forget(self, waiting):
        """Drop a call whose other responses are not wanted.  True: it was not over.  For finalisers, too: takes no
        lock.
        """
        if self._calls.pop(waiting.number, None) is None:
            return False
        waiting.final = True
        self._coroutines.discard(waiting.number)
        return True

    def close(self, response):
        """The instance ends before its process: `response` is the answer to whatever is open."""
        with self._lock:
            self._closed = True
            left = list(self._calls.values())
            self._calls.clear()
            self._coroutines.clear()
            for waiting in left:
                self._end(waiting, response)
            if self._wanted is not None:
                self._wanted.put(None)
        for waiting in left:
            if waiting.loop is not None:
                _tell(waiting)

    def _end(self, waiting, response):
        waiting.arrived.append(response)
        waiting.final = True
        if waiting.turn is not None:
            _wake(waiting)

    def wait(self, waiting):
        """Return when something has come for this call.  In a thread."""
        while not waiting.arrived and not waiting.final:
            with self._lock:
                if waiting.arrived or waiting.final:
                    return
                lead = not self._led
                if lead:
                    self._led = True
                else:
                    turn = waiting.turn = threading.Lock()
                    turn.acquire()
                    self._threads.append(waiting)
            if lead:
                self._lead(lambda: waiting.arrived or waiting.final)
            else:
                turn.acquire()

    def _lead(self, enough):
        """Read for all, until `enough()`."""
        try:
            while True:
                self._take()
                if enough():
                    return
                self._wait(self._channel, self._spin_ns, _LOOK_NS)
        finally:
            self._resign()

    def _resign(self):
        """Somebody else reads, if somebody waits."""
        with self._lock:
            self._led = False
            while self._threads:
                waiting = self._threads.popleft()
                if waiting.turn is not None:
                    _wake(waiting)
                    return
            if self._coroutines:
                self._want_reader()

    def _take(self):
        """Take all replies that are in the ring."""
        pending = self._pending(self._ring)
        if not pending:
            return
        for at in range(self._head, self._head + pending):
            slot = REPLY_SLOT.unpack_from(self._memory, self._first + (at & self._mask) * SLOT_BYTES)
            self._deliver(slot)
        self._head += pending
        if self._took(self._channel, pending):
            self._ring_bell()

    def rest(self):
        """The instance is idle: let go of answers that came too late for anybody."""
        with self._lock:
            if self._led:
                return
            self._led = True
        try:
            self._take()
        finally:
            self._resign()

    def _deliver(self, slot):
        kind, flags, status, nbytes, number, offset, answer, told = slot
        if number not in self._calls:  # nobody waits for it
            if answer:
                self._release(answer)
            return
        response = self._read(kind, status, nbytes, offset, answer, told)
        with self._lock:
            waiting = self._calls.get(number)
            if waiting is None:
                return  # nobody does any more: the response lets its memory go
            waiting.arrived.append(response)
            if flags & TF_FINAL:
                waiting.final = True
                del self._calls[number]
                self._coroutines.discard(number)
            if waiting.turn is not None:
                _wake(waiting)
        if waiting.loop is not None:
            _tell(waiting)

    def _want_reader(self):
        """A coroutine waits: have our thread read when nobody else does.  With the lock."""
        if self._wanted is None:
            self._wanted = queue.SimpleQueue()
            threading.Thread(target=self._read_for_coroutines, name="tisfast-replies", daemon=True).start()
        if not self._led:
            self._wanted.put(None)

    def _read_for_coroutines(self):
        while not self._closed:
            self._wanted.get()
            with self._lock:
                if self._led or not self._coroutines:
                    continue  # who reads now asks for us when it stops
                self._led = True
            self._lead(lambda: not self._coroutines)


def _wake(waiting):
    """A thread that waits for its turn.  With the lock."""
    turn, waiting.turn = waiting.turn, None
    turn.release()


def _tell(waiting):
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
        waiting.loop.call_soon_threadsafe(waiting.on_news)
