"""The state that the calls of one gRPC listener share.  Layer 4 (front).

Answers of one turn of the loop leave a connection with one write: calls `touch` their connection, and the connections
that were touched are flushed at the turn's end.  With a single call open there is nothing to wait for.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint64_t
from tisfast.front.grpc.message_turns cimport MessageTurns
from tisfast.wire.grpc.infer cimport Peek
from tisfast.wire.grpc.respond cimport GrpcBody

from tisfast import limits, tuning
from tisfast.errors import Unavailable

cdef uint64_t COLLECTED_BYTES_MAX = limits.GRPC_COLLECTED_BYTES_MAX
cdef dict LEVELS = {"none": 0, "low": 1, "medium": 2, "high": 3}


cdef class GrpcListenerContext:
    """registry: engine.registry.Registry; methods: operations.grpc.methods.Methods; settings: config.settings.GrpcSettings."""

    def __init__(self, registry, methods, loop, settings, *, uint64_t max_input_bytes, extras):
        self.registry = registry
        self.methods = methods
        self.loop = loop
        self.settings = settings
        self.max_input_bytes = max_input_bytes
        self.regions = extras.regions
        self.codecs = extras.codecs
        self.codec_bytes_min = UINT64_MAX if extras.codecs is None else extras.codecs.bytes_min
        self.restriction = extras.restriction
        self.forward = extras.forward
        self.trace_with(None)
        self.compression = LEVELS[settings.compression]
        self.connections = set()
        self.receive = bytearray(tuning.GRPC_RECEIVE_BUFFER_BYTES)
        self.receive_start = memoryview(self.receive)[:tuning.GRPC_RECEIVE_START_BYTES]
        self.receive_data = <unsigned char *>self.receive  # never resized, so never moved
        self.body = GrpcBody()
        self.turns = MessageTurns(loop)
        self.peek = Peek()
        self.dirty = []
        self.flush_turn = self._flush_turn

    def trace_with(self, tracer) -> None:
        """Ask `tracer` about inference requests from now on; None: no tracing."""
        self.tracer = tracer
        self.keeps_metadata = self.restriction is not None or self.forward is not None or tracer is not None

    def log_to(self, access_log) -> None:
        """Note each call in `access_log` from now on, while anybody reads its lines; that is asked once a second."""
        self.access_log = access_log
        self.access = access_log if access_log.wanted else None

    def sweep(self) -> None:
        """Once a second: what has lasted too long on any connection ends."""
        self.tick += 1
        if self.access_log is not None:
            self.log_to(self.access_log)
        for connection in list(self.connections):
            try:
                connection.on_tick()
            except Exception as error:  # our bug: the others go on
                connection.break_off(error)

    def finish_sequences(self, str message) -> None:
        """From now on sequences in progress are served, and no other inference: that is refused with this message."""
        self.closing = message

    def begin_drain(self) -> None:
        """No new calls from now on; connections go when their last call is answered."""
        self.draining = True
        self.drain()

    def drain(self) -> None:
        """Let the connections go that have no call any more."""
        for connection in list(self.connections):
            try:
                connection.drain()
            except Exception as error:  # as above
                connection.break_off(error)

    cdef int count_collected(self, int64_t change) except -1:
        """Messages outside arenas are bounded over all connections.  Raises Unavailable."""
        self.collected_bytes += change
        if change > 0 and self.collected_bytes > COLLECTED_BYTES_MAX:
            raise Unavailable(
                f"messages that are being received outside of models' memory exceed {COLLECTED_BYTES_MAX} bytes "
                "together; retry later")
        return 0

    def _flush_turn(self) -> None:
        cdef GrpcSession session
        dirty, self.dirty = self.dirty, []
        for session in dirty:
            session.marked = False
            session.flush()


cdef class GrpcSession(Http2Server):
    """Base of GrpcConnection.  Cython has no abstract methods: subclasses override all that raise here."""

    cdef int touch(self) except -1:
        if self.receiving or self.collecting or self.marked:
            return 0
        return self.flush() if len(self.streams) <= 1 else self.mark()

    cdef int mark(self) except -1:
        if self.marked:
            return 0
        self.marked = True
        if not self.shared.dirty:
            self.shared.loop.call_soon(self.shared.flush_turn)
        self.shared.dirty.append(self)
        return 0

    cdef int flush(self) except -1:
        raise NotImplementedError(f"{type(self).__name__}.flush")
