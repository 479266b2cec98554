# Resources that executions share, over all models of a server.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint64_t

cdef class Pool:
    """One resource, of one device or of the server."""
    cdef readonly str name
    cdef readonly int64_t device         # GLOBAL: of the server
    cdef readonly int64_t limit          # units there are
    cdef readonly int64_t taken          # units that executions hold; may exceed a limit that has just shrunk
    cdef readonly int64_t floor          # score of the latest claim that took of it
    cdef list waiting                    # of Claim, the next one first
    cdef dict members                    # Claim -> units, of all that ever ask for it
    cdef int enter(self, Claim claim) except -1

cdef class Claim:
    """The resources that one instance needs for an execution, and its turn.  Belongs to the instance, not to one worker of it."""
    cdef readonly str instance
    cdef readonly bint holds             # its execution is running
    cdef readonly uint64_t executions
    cdef readonly int64_t score          # executions x priority, lifted to where the others are; the lowest goes first
    cdef RateLimiter limiter
    cdef list pools, counts              # what it needs of each
    cdef int64_t priority
    cdef uint64_t order                  # among waiting claims of equal score
    cdef bint waiting
    cdef object wake                     # called when it may run now
    # Whether the instance may start an execution now; if not it waits for its turn, and `wake` is called when that comes.
    cpdef bint may_run(self) except -1
    cpdef int take(self) except -1        # after may_run said yes: the execution starts
    cpdef int give_back(self) except -1   # it is over, or its worker is dead; nothing happens when nothing is held
    cpdef int leave(self) except -1       # there is nothing to run any more
    cdef bint fits(self) except -1
    cdef bint before(self, Claim other) noexcept
    # Whether it could run while all of these go on holding what they hold: else it never may, if they wait for it.
    cdef bint fits_beside(self, list holders) except -1

cdef class RateLimiter:
    cdef dict pools                      # (name, device) -> Pool
    cdef dict limits                     # the same, or (name, EVERYWHERE) -> units that the command line grants
    cdef list freed                      # pools whose next waiting claim may be able to run
    cdef bint waking
    cdef uint64_t orders
    # Let everybody run who can now.
    cpdef int settle(self) except -1
    cdef object serve(self, Pool pool, object failure)
