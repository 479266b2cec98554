# Whose messages are handled in this turn of the loop.  Layer 4 (front).

cdef class MessageTurns:
    """One for each listener: a turn of the loop handles tuning.GRPC_TURN_MESSAGES messages of all its connections.

    What a call has beyond them it holds, and is parked; parked calls are served in the next turns, a few messages of each
    before anybody has more.  What has just been read is served first, if only by one message: who sends one at a time
    waits for no flood.
    """
    cdef object loop
    cdef readonly int left               # messages that this turn may still handle; at most 0: `_next_turn` will be called
    cdef readonly object parked          # deque of GrpcStream
    cdef bint asked
    cdef object next_turn                # bound once
    cdef inline void begin_read(self) noexcept:
        if self.left <= 0:
            self.left = 1
    cdef int spend(self, int weight) except -1
    cdef int park(self, object call) except -1
    cdef int _ask(self) except -1
