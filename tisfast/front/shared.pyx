"""What all connections of one listener share.  Layer 4 (front)."""

import logging

from tisfast import limits
from tisfast.front.response import error_response
from tisfast.types import Status

cdef object log = logging.getLogger("tisfast.http")


cdef class FrontShared:
    """registry: engine.registry.Registry or None; routes: has handle(head, body) -> Response; loop: uvloop; policy: has
    judge(head) -> Verdict, or None; regions: those that clients have registered."""

    def __init__(self, registry, routes, loop, *, uint64_t max_input_bytes, policy=None, Regions regions=None):
        self.registry = registry
        self.routes = routes
        self.policy = policy
        self.loop = loop
        self.max_input_bytes = max_input_bytes
        self.regions = regions
        self.connections = set()
        self.receive = bytearray(limits.RECEIVE_BUFFER_BYTES)
        self.receive_data = <unsigned char *>self.receive  # never resized, so never moved
        self.body = Body()
        self.look_at_log()

    cdef int look_at_log(self) except -1:
        """Whether to log requests: asked for once a second and after calls that may change it, not for each inference."""
        self.verbose = self.registry is not None and log.isEnabledFor(logging.DEBUG)
        return 0

    cdef object handle(self, head, bytes body):
        """The routes' Response, whatever happens in them."""
        try:
            return self.routes.handle(head, body)
        except Exception as error:  # our bug: answered, reported once, and the server goes on
            self.loop.call_exception_handler({"message": f"{head.method} {head.path} failed", "exception": error})
            return error_response(Status.INTERNAL, f"unexpected {type(error).__name__} in the server; see its log")
        finally:
            self.look_at_log()

    def sweep(self) -> None:
        """Once a second: close connections whose client stopped in the middle of a request."""
        self.tick += 1
        self.look_at_log()
        for connection in list(self.connections):
            connection.close_if_stalled()

    def begin_drain(self) -> None:
        """From now on every answer closes its connection."""
        self.draining = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that are between requests."""
        for connection in list(self.connections):
            connection.close_if_idle()
