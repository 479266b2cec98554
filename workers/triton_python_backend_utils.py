"""The module that Triton's Python models import, the same real classes inside the server and in a unit test.

numpy is imported when a function needs it, so that a model without arrays runs in an environment without numpy.
"""

from tisfast_worker.custom_metrics import MetricFamily
from tisfast_worker.errors import TritonError, TritonModelException
from tisfast_worker.logger import Logger
from tisfast_worker.model_config import ModelConfig
from tisfast_worker.pb_utils_functions import (
    deserialize_bytes_tensor,
    get_input_config_by_name,
    get_input_tensor_by_name,
    get_model_dir,
    get_output_config_by_name,
    get_output_tensor_by_name,
    is_model_ready,
    load_model,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_strings,
    triton_to_numpy_type,
    unload_model,
    using_decoupled_model_transaction_policy,
)
from tisfast_worker.request import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
    InferenceTrace,
    PreferredMemory,
)
from tisfast_worker.response import InferenceResponse
from tisfast_worker.response_sender import TRITONSERVER_RESPONSE_COMPLETE_FINAL, InferenceResponseSender
from tisfast_worker.tensor import Tensor

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]


def __getattr__(name):
    """TRITON_STRING_TO_NUMPY, made when asked for, as it needs numpy."""
    if name == "TRITON_STRING_TO_NUMPY":
        return triton_strings()
    raise AttributeError(f"module 'triton_python_backend_utils' has no attribute '{name}'")
