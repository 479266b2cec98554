"""The module that Triton's stub has in it: the classes of triton_python_backend_utils, there from the first import.

Models import them for type hints and by name.  It comes with the server and from no registry.
"""

from tisfast_worker.custom_metrics import Metric, MetricFamily, MetricKind
from tisfast_worker.errors import TritonError, TritonModelException
from tisfast_worker.logger import Logger
from tisfast_worker.pb_utils_functions import is_model_ready, load_model, unload_model
from tisfast_worker.request import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    InferenceRequest,
    InferenceTrace,
    PreferredMemory,
)
from tisfast_worker.response import InferenceResponse
from tisfast_worker.response_iterator import ResponseIterator
from tisfast_worker.response_sender import InferenceResponseSender
from tisfast_worker.serving_context import current
from tisfast_worker.tensor import Tensor

COUNTER, GAUGE, HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM


class SharedMemory:
    """The memory that an instance's answers lie in."""

    def free_memory(self):
        """Bytes of it that no answer has; 0 outside the server."""
        return current().free_output_bytes()


shared_memory = SharedMemory()

__all__ = [
    "COUNTER",
    "GAUGE",
    "HISTOGRAM",
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "Metric",
    "MetricFamily",
    "MetricKind",
    "PreferredMemory",
    "ResponseIterator",
    "SharedMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "is_model_ready",
    "load_model",
    "shared_memory",
    "unload_model",
]
