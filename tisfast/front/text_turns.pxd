# How much JSON is read on the loop in one turn.  Layer 4 (front).
from libc.stdint cimport uint64_t

cdef class TextTurns:
    """One for each listener: a turn of the loop reads tuning.TURN_TEXT_BYTES of JSON; codec processes read what is beyond.

    One text is small enough for the loop, but many clients, or one with many connections, send theirs in one moment.
    """
    cdef object loop
    cdef uint64_t left              # bytes that this turn may still read
    cdef bint asked                 # the next turn will begin anew
    cdef object next_turn           # bound once
    cdef bint spend(self, uint64_t nbytes) except -1   # False: a codec process is to read them
