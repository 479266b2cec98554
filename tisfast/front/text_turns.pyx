"""Bounds the JSON that is read on the loop in one turn; see text_turns.pxd.  Layer 4 (front)."""

from libc.stdint cimport uint64_t

from tisfast import tuning

cdef uint64_t TEXT_BYTES = tuning.TURN_TEXT_BYTES
cdef uint64_t ASKED_BYTES = tuning.TURN_TEXT_BYTES // 8     # the loop is asked for a call once for so many, not for each text


cdef class TextTurns:
    """See text_turns.pxd."""

    def __cinit__(self, loop):
        self.loop = loop
        self.left = TEXT_BYTES
        self.next_turn = self._next_turn

    cdef bint spend(self, uint64_t nbytes) except -1:
        if nbytes > self.left:
            if self.asked:
                return False
            nbytes = self.left  # the first one of a turn, and --codec-bytes-min is above what a turn has
        self.left -= nbytes
        if not self.asked and self.left <= TEXT_BYTES - ASKED_BYTES:
            self.asked = True
            self.loop.call_soon(self.next_turn)
        return True

    def _next_turn(self) -> None:
        self.asked = False
        self.left = TEXT_BYTES
