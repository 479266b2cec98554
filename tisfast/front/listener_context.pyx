"""The state that all connections of one listener share.  Layer 4 (front)."""

import logging

from libc.stdint cimport UINT64_MAX, uint64_t

from tisfast import tuning
from tisfast.errors import TisError
from tisfast.operations.http_response import error_response
from tisfast.types import Status

cdef object log = logging.getLogger("tisfast.http")


cdef class ListenerContext:
    """registry: engine.registry.Registry or None; routes: has handle(head, body) -> Response; loop: uvloop; policy: has
    judge(head) -> Verdict, or None; regions: those that clients have registered; gate: has admit(head, transport) ->
    Admission, or None; codecs: codec.pool.Codecs, or None."""

    def __init__(
            self, registry, routes, loop, *, uint64_t max_input_bytes, policy=None, Regions regions=None, gate=None,
            codecs=None):
        self.codecs = codecs
        self.codec_bytes_min = UINT64_MAX if codecs is None else codecs.bytes_min
        self.registry = registry
        self.routes = routes
        self.policy = policy
        self.gate = gate
        self.loop = loop
        self.max_input_bytes = max_input_bytes
        self.regions = regions
        self.connections = set()
        self.receive = bytearray(tuning.RECEIVE_BUFFER_BYTES)
        self.receive_start = memoryview(self.receive)[:tuning.RECEIVE_START_BYTES]
        self.receive_data = <unsigned char *>self.receive  # never resized, so never moved
        self.body = ResponseBody()
        self.look_at_log()

    cdef int look_at_log(self) except -1:
        """Whether to log requests: asked for once a second and after calls that may change it, not for each inference."""
        self.verbose = self.registry is not None and log.isEnabledFor(logging.DEBUG)
        self.access = self.access_log if self.access_log is not None and self.access_log.wanted else None
        return 0

    def log_to(self, access_log) -> None:
        """Note each request in `access_log` from now on, while anybody reads its lines."""
        self.access_log = access_log
        self.look_at_log()

    cdef object handle(self, head, bytes body):
        """The routes' Response, whatever happens in them."""
        try:
            return self.routes.handle(head, body)
        except Exception as error:
            return self.refusal(error, head)
        finally:
            self.look_at_log()

    cdef object refusal(self, error, head):
        """The Response to a request that raised.  What is no TisError is our bug: reported once, and the server goes on."""
        if isinstance(error, TisError):
            return error_response(error.status, error.message)
        self.report(f"{head.method} {head.path} failed", error)
        return error_response(Status.INTERNAL, f"unexpected {type(error).__name__} in the server; see its log")

    cdef int report(self, str message, error) except -1:
        self.loop.call_exception_handler({"message": message, "exception": error})
        return 0

    def sweep(self) -> None:
        """Once a second: close connections whose client stopped in the middle of a request."""
        self.tick += 1
        self.look_at_log()
        for connection in list(self.connections):
            connection.close_if_stalled()

    def finish_sequences(self, str message) -> None:
        """From now on sequences in progress are served, and nothing else: that is refused with this message."""
        self.closing = message

    def begin_drain(self) -> None:
        """From now on every answer closes its connection."""
        self.draining = True
        self.drain()

    def drain(self) -> None:
        """Let the connections go that are between requests."""
        for connection in list(self.connections):
            connection.drain()
