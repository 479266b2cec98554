"""The engine's values and faces.  Layer 3 (engine)."""

cimport cython
from libc.stdint cimport int64_t, uint32_t


cdef class AnswerSink:
    """Base of the fronts' answer sinks.  Cython has no abstract methods: subclasses override all that raise here."""

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        raise NotImplementedError(f"{type(self).__name__}.answered")

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        raise NotImplementedError(f"{type(self).__name__}.failed")


cdef class RequestRefusal:
    """See core.pxd."""


@cython.freelist(256)
cdef class InferRequest:
    """One queued or running request."""



cdef class Clock:
    """Base of the clocks; this one stands still at 0."""

    cdef int64_t now_ns(self) noexcept:
        return 0

    cdef int64_t epoch_ms(self) noexcept:
        return 0


cdef class Link:
    """Base of the links."""

    cdef int dispatch(self, list batch, int64_t now_ns) except -1:
        raise NotImplementedError(f"{type(self).__name__}.dispatch")

    cdef uint32_t room(self) noexcept:
        return 0

    cdef list recall(self, InferRequest request):
        raise NotImplementedError(f"{type(self).__name__}.recall")

    cdef uint32_t waiting(self) except? 0xFFFFFFFF:
        return 0

    cdef int expect(self) except -1:
        return 0

    @property
    def kept_blocks(self) -> int:
        """Blocks of the input arena that only user code still refers to."""
        return 0

    cdef bint has(self, InferRequest request) except -1:
        raise NotImplementedError(f"{type(self).__name__}.has")
