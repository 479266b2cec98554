"""The lock around what is written while a model's own code may run: an object's `__str__`, a `__del__`."""

import threading

from tisfast_worker.errors import TritonModelException


class SendLock:
    """A lock that tells a thread so when it would wait for itself."""

    def __init__(self):
        """The lock is free."""
        self._lock = threading.RLock()  # lets its holder in, to be told
        self._held = False

    def __enter__(self):
        """Waits for other threads; raises TritonModelException in the thread that has it."""
        self._lock.acquire()
        if self._held:
            self._lock.release()
            raise TritonModelException(
                "send() was called while a response of this instance is being sent, by an object's __str__ or __del__; "
                "send from execute, or from a thread"
            )
        self._held = True

    def __exit__(self, *_):
        """The next one's."""
        self._held = False
        self._lock.release()
