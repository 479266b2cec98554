"""pb_utils.InferenceResponse."""

from tisfast_worker import arguments
from tisfast_worker import parameters as params
from tisfast_worker.errors import TritonError, TritonModelException, not_copied
from tisfast_worker.tensor import Tensor


class InferenceResponse:
    """The answer to one request: output tensors, or an error."""

    __slots__ = ("__weakref__", "_error", "_parameters", "_tensors")

    def __init__(self, output_tensors=(), error=None, parameters=None):
        """Raises TypeError or TritonModelException for arguments that are no tensors, error or parameters."""
        # A copy in any case: models reuse their lists.
        output_tensors = list(output_tensors) if output_tensors.__class__ is list else _listed(output_tensors)
        for tensor in output_tensors:
            if not isinstance(tensor, Tensor):
                _refuse(tensor)
        if error is not None and not isinstance(error, TritonError):
            raise arguments.wrong("InferenceResponse", "error", "a TritonError, as TritonError(message)", error)
        self._tensors = output_tensors
        self._error = error
        self._parameters = params.text(parameters) if parameters is not None else ""

    def __reduce__(self):
        """Refused, as Triton refuses it: it belongs to this process."""
        raise not_copied(self)

    def output_tensors(self):
        """The tensors, a list."""
        return list(self._tensors)

    def has_error(self):
        """Whether this response is an error."""
        return self._error is not None

    def error(self):
        """The TritonError, or None."""
        return self._error

    def parameters(self):
        """Response parameters as JSON object text."""
        return self._parameters or "{}"


def _listed(tensors):
    if isinstance(tensors, (str, bytes, dict)) or not hasattr(tensors, "__iter__"):
        raise arguments.wrong("InferenceResponse", "output_tensors", "a list of Tensor, which may be empty", tensors)
    return list(tensors)


def _refuse(tensor):
    if tensor is None:
        raise TritonModelException("Output tensor for inference response should not be empty.")
    raise arguments.wrong("InferenceResponse", "an item of output_tensors", "a Tensor", tensor)
