"""What the server's side of PyTriton's API raises; the client's exceptions are a family of their own."""


class PyTritonError(Exception):
    """Base of all of them."""

    def __init__(self, message: str) -> None:
        """message: the whole text, which is `str()` of the exception, too."""
        super().__init__(message)
        self._message = message

    @property
    def message(self) -> str:
        """The text."""
        return self._message


class PyTritonValidationError(PyTritonError):
    """An argument cannot be what it is."""


class PyTritonInvalidOperationError(PyTritonError):
    """The call does not go with what was done before."""


class PyTritonBadParameterError(PyTritonError):
    """A value of a configuration, or of a decorator, is out of its range."""


class PyTritonModelConfigError(PyTritonError):
    """A dictionary or file is no model configuration."""


class PyTritonUnrecoverableError(PyTritonError):
    """Raised by a callable to say that nothing can be served any more: the server stops."""


class PyTritonRuntimeError(PyTritonError):
    """A decorator cannot do its work with these requests."""
