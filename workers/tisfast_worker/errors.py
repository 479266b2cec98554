"""pb_utils.TritonError and TritonModelException."""

from enum import IntEnum

from tisfast_worker import arguments


class TritonModelException(Exception):  # noqa: N818 - the name is Triton's
    """Raised by triton_python_backend_utils; in execute it becomes an INTERNAL error of the batch."""


class ErrorCode(IntEnum):
    """TRITONSERVER_Error_Code; on the wire to the server one more, where 0 is success."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonError:
    """The error of one response: a message, and a code that becomes the request's status."""

    __slots__ = ("_code", "_message")

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    def __init__(self, message, code=ErrorCode.INTERNAL):
        """Raises TypeError when message is no text or code not one of this class's codes."""
        self._message, self._code = arguments.text("TritonError", "message", message), code
        if not isinstance(code, ErrorCode):
            raise arguments.wrong("TritonError", "code", "one of TritonError's codes, as TritonError.INTERNAL", code)

    def message(self):
        """The text."""
        return self._message

    def code(self):
        """One of TritonError's codes."""
        return self._code


def not_copied(item):
    """The error of copying or pickling a tensor, request or response, in Triton's words."""
    kind = type(item).__name__
    return TypeError(f"cannot pickle '{kind}' object; take its arrays along: as_numpy() of its tensors")
