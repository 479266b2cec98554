"""What clients raise; the server's side has a family of its own."""


class PyTritonClientError(Exception):
    """Base of all of them."""

    def __init__(self, message: str) -> None:
        """message: the whole text, which is `str()` of the exception, too."""
        super().__init__(message)
        self._message = message

    def __str__(self) -> str:
        """The text."""
        return self._message

    @property
    def message(self) -> str:
        """The text."""
        return self._message


class PyTritonClientValueError(PyTritonClientError):
    """An argument cannot be what it is."""


class PyTritonClientInvalidUrlError(PyTritonClientValueError):
    """The address of a server is none."""


class PyTritonClientTimeoutError(PyTritonClientError):
    """The server or model was not ready, or did not answer, in time; or it cannot be reached."""


class PyTritonClientModelUnavailableError(PyTritonClientError):
    """The model is not served.  For programs that name it; absent models are timeouts."""


class PyTritonClientClosedError(PyTritonClientError):
    """The client was closed before."""


class PyTritonClientModelDoesntSupportBatchingError(PyTritonClientError):
    """Batches were given to a model without batching."""


class PyTritonClientInferenceServerError(PyTritonClientError):
    """The server, or the model, answered with an error."""


class PyTritonClientQueueFullError(PyTritonClientError):
    """More requests wait than may wait."""
