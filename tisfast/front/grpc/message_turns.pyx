"""Bounds the messages that are handled in one turn of the loop; see message_turns.pxd.  Layer 4 (front).

A message of five bytes can cost a hundred times what it costs to send, and a read brings thousands.  So they are counted,
over all connections, as many clients may be one.
"""

from collections import deque

from tisfast import tuning

cdef int MESSAGES = tuning.GRPC_TURN_MESSAGES
cdef int SHARE = tuning.GRPC_TURN_SHARE


cdef class MessageTurns:
    """See message_turns.pxd."""

    def __cinit__(self, loop):
        self.loop = loop
        self.left = MESSAGES
        self.parked = deque()
        self.next_turn = self._next_turn

    cdef int spend(self, int weight) except -1:
        self.left -= weight
        return self._ask() if self.left <= 0 else 0

    cdef int park(self, object call) except -1:
        self.parked.append(call)
        return self._ask()

    cdef int _ask(self) except -1:
        if not self.asked:
            self.asked = True
            self.loop.call_soon(self.next_turn)
        return 0

    def _next_turn(self) -> None:
        cdef int left = MESSAGES, share
        self.asked = False
        while left > 0 and self.parked:
            call = self.parked.popleft()
            self.left = share = min(left, SHARE)
            call.take_turn()
            left -= share - self.left
        self.left = left
        if left <= 0 or self.parked:
            self._ask()
