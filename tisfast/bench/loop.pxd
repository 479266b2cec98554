# Requests go when they are due, answers are counted: one epoll for all connections of a load.  Layer 5 (bench).
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from tisfast.bench.histogram cimport Histogram

cdef struct Slot:                        # a request that is under way
    int64_t intended
    int64_t sent                         # 0: it waits
    int64_t first                        # byte of its answer; 0: none has come
    uint64_t sequence_id
    uint64_t sent_bytes
    uint64_t received_bytes
    uint64_t serial                      # of all requests of this loop, from 1 on; 0: the slot is free
    uint32_t step
    uint32_t responses
    uint32_t index
    uint32_t load                        # its connection
    bint begins, ends                    # its sequence
    bint counted                         # else it only ends a sequence, and is in no figure

cdef enum:
    SLOT_BITS = 16                       # of an index

cdef enum State:
    CLOSED                               # to be opened at `retry_at`
    CONNECTING
    OPEN

cdef class Tally:
    """What was counted in one stretch of time."""
    cdef readonly Histogram response, service, first_byte, lateness
    cdef readonly int64_t began_ns, ended_ns
    cdef readonly uint64_t requests, completed, failed, responses, delayed, sequences, sent_bytes, received_bytes
    cdef readonly int64_t send_ns, receive_ns, idle_ns, gil_ns
    cdef readonly object tokens          # tokens.Tokens, where answers have some; else None
    cdef readonly list parts             # a Tally for each of several models

cdef class Marks:
    """Where the values of a sequence lie in a request that was rendered with stand-ins for them; -1: in none."""
    cdef Py_ssize_t id_at, id_bytes, begins_at, ends_at
    cdef bint text                       # of JSON: digits and words behind blanks; else varints
    cdef bytes written(self, bytes rendered, Slot *slot)

cdef class Load:
    """One connection, and how requests are sent on it: a subclass for each protocol."""
    cdef Loop loop
    cdef int fd, state
    cdef uint32_t number
    cdef int places, busy                # requests that it may have under way, and has
    cdef bint listed                     # among those that the loop knows to have a place
    cdef bint wants_out                  # epoll tells when it can be written
    cdef int64_t retry_at                # to be opened again; while it connects: when that has failed
    cdef int64_t opened_at
    cdef int failures                    # to connect, in a row
    cdef object channel                  # encryption.Channel, or None
    cdef bint linked                     # connected: what is left of CONNECTING is the handshake
    # ---- told to the subclass; an exception of TisError is the end of the connection
    cdef int on_open(self) except -1
    cdef int on_bytes(self, ssize_t n) except -1         # so many lie in loop.room; 0: the server has closed
    cdef int begin(self, Slot *slot) except -1           # send it, or keep what is to be sent
    cdef int flush(self) except -1                       # send what is kept; an encrypted one through `channel` and `send_sealed`
    cdef int on_lost(self, str text) except -1           # what was under way has failed
    # ---- what comes
    cdef int on_readable(self) except -1
    cdef int unseal(self) except -1                      # all that can be deciphered
    # ---- for the subclass
    cdef int send_sealed(self) except -1                 # 1: all is sent, else it goes on when the socket has room
    cdef int want_out(self, bint wanted) except -1
    cdef int done(self, Slot *slot, int64_t now, int status) except -1
    cdef int failed(self, Slot *slot, int64_t now, str status, str text) except -1
    cdef int renew(self) except -1                       # nothing was lost: open it again at once

cdef class Loop:
    cdef int epoll, timer
    cdef object address                  # of socket.connect, and its family
    cdef int family
    cdef object make                     # gives a Load, for another connection
    cdef object channel                  # gives each an encryption.Channel, or None
    cdef list loads                      # all, by number
    cdef list free_loads                 # those with a place, the last used last
    cdef list broken                     # those to be opened again
    cdef readonly list templates
    cdef readonly object mixture         # mixture.Mixture of several models, or None, and what of it is looked at:
    cdef object order, models            # arrays, ...
    cdef uint32_t *step_at               # ... the templates in the order in which they are sent, over and over, ...
    cdef uint32_t steps
    cdef uint16_t *model_at              # ... and of each template its model
    cdef Slot *slots
    cdef uint32_t *free_slots
    cdef uint32_t slots_max, free_count
    cdef uint64_t serial
    cdef readonly int opened             # connections that are open
    cdef int connecting
    cdef uint64_t losses                 # of connections
    cdef int64_t connect_by              # the first one's end that connects
    cdef int64_t lost_since              # the last connection was lost then, and nothing was answered since; 0: it was
    cdef readonly str lost_text          # why the last one was lost, or could not be made
    cdef int connections_max
    cdef uint32_t step
    # ---- what is to be sent
    cdef int concurrency                 # closed loop; 0: open
    cdef object known                    # array of intended times, ...
    cdef int64_t *schedule               # ... and where they lie
    cdef Py_ssize_t due, due_end
    cdef int64_t left                    # requests that may still begin; -1: any number
    cdef int64_t timer_at
    cdef object player                   # gives each request's place in a sequence, or None
    cdef bint cutting                    # what was allowed has begun; open sequences get a last request each
    cdef bint finishing                  # `run` goes on until these are answered, too
    cdef int idle_open, uncounted        # open sequences that wait for it; such requests under way
    cdef uint32_t period                 # responses after which a request is counted in `reached`; 0: none is
    cdef int reached, launched, joining, launched_max
    # ---- what was counted
    cdef readonly Tally tally
    cdef object counting                 # makes a tally's `tokens`; or None
    cdef Histogram slice
    cdef uint64_t slice_responses
    cdef dict errors
    cdef readonly object first_error     # (text, ns of CLOCK_MONOTONIC)
    cdef object records                  # array of results.RECORD, or None
    cdef uint8_t *record_at
    cdef Py_ssize_t records_count, records_max
    cdef Py_ssize_t records_missed
    cdef object stamps                   # array of results.STAMP, or None
    cdef uint8_t *stamp_at
    cdef Py_ssize_t stamps_count, stamps_max, stamps_missed
    cdef bytearray scratch
    cdef unsigned char *room
    cdef Py_ssize_t room_bytes
    # ----
    cdef bint may_begin(self, int64_t now) noexcept
    cdef Slot *take(self, int64_t now) except NULL
    cdef int refill(self, Load load) except -1
    cdef int offer(self, Load load) except -1
    cdef int spread(self) except -1
    cdef Tally part(self, Slot *slot)                    # of its model; None: there is one model
    cdef int begun(self, Tally tally, Slot *slot, int64_t now) except -1
    cdef int counted(self, Tally tally, Slot *slot, int64_t now, bint good) except -1
    cdef int ended(self, Load load, Slot *slot, int64_t now, int status, bint good) except -1
    cdef int stamp(self, Slot *slot, int64_t now) except -1  # a response of a decoupled model
    cdef int note(self, Load load, Slot *slot, int64_t now, int status, bint good) except -1
    cdef int error(self, Slot *slot, str status, str text, int64_t now) except -1
    # All that is under way on this connection has failed.
    cdef int fail_all(self, Load load, str status, str text, int64_t now) except -1
    # The request of a connection by serial << SLOT_BITS | index; 0: the oldest one.  NULL: there is none.
    cdef Slot *slot_of(self, Load load, uint64_t id) noexcept
    cdef int opening(self, Load load) except -1
    cdef int lose(self, Load load, str text) except -1
    cdef int close_load(self, Load load) except -1
    cdef int reopen(self, int64_t now) except -1
    cdef int give_up(self, int64_t now) except -1
    cdef int due_now(self, int64_t now, int most) noexcept
    cdef int on_period(self) except -1
    cdef int begin_cutting(self) except -1
    cdef int event(self, Load load, uint32_t events) except -1
    cdef int arm(self) except -1
    cdef int wait_ms(self, int64_t now, int64_t until) noexcept
