"""Every deliberate difference between tisfast and Triton 2.51 over gRPC, with its reason: the one table.

A call that is not here must be answered alike (grpc_exchange.py says what that means).  A call that is here must
differ, and ours must begin as written.
"""

# ruff: noqa: E501  (a table: one call, one line)
from __future__ import annotations

from typing import Final

# fmt: off
TABLE: Final[dict[str, dict[str, str]]] = {
    "A version is a number and nothing else; 2.51 reads the digits that come first.": {
        f"{method} of version 1x": "INVALID_ARGUMENT failed to get model version from specified version string '1x'"
        for method in ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics")
    },
    "Tensors that belong to no input are an error of the client's, not to be dropped in silence.": {
        "raw surplus": "INVALID_ARGUMENT unexpected raw_input_contents: 3 entries for 2 inputs",
    },
    "Newer Triton names an impossible shape for what it is; more dimensions than numpy has are refused by their number.": {
        "negative shape": "INVALID_ARGUMENT invalid shape for input 'INPUT0': shape [-4] contains one or more invalid dimensions",
        "rank 41": "INVALID_ARGUMENT invalid shape for input 'INPUT0': 41 dimensions, 32 is the limit",
    },
    "Newer Triton refuses an output that is asked for twice, with HTTP's text.": {
        "outputs: twice": "INVALID_ARGUMENT [request id: <id_unknown>] output 'OUTPUT1' already exists in request",
    },
    "Of two inputs that do not fit, the first is named; 2.51 names whichever its hash table has first.": {
        "batch without dimension": "INVALID_ARGUMENT [request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'batched'.",
    },
    "A negative timeout is refused, as over HTTP; 2.51 takes it for half a million years.": {
        "timeout of -1": "INVALID_ARGUMENT invalid value for 'timeout', expected value >= 0. (got -1)",
    },
    "model_version is always filled; 2.51 leaves it out of failures.": {
        "stream: model fails, then good": "OK {'error_message': 'the model says NOT_FOUND', 'infer_response': {'model_name': 'misbehave', 'model_version': '1', 'id': 'f', 'parameters': {'triton_final_response': {'bool_param': True}}}}",
    },
    "model_version is always filled; 2.51 leaves it out of a decoupled model's errors and end.": {
        f"decoupled: {plan or 'none'}{end}": "OK {'"
        for plan in ("1", "12", "123", "", "e", "1e", "1e2", "e1", "n")
        for end in ("", ", and the end")
        if end or "e" in plan or "n" in plan
    },
    "2.51 ends in a crash.": {
        "classes of BYTES": "INVALID_ARGUMENT class result not available for output due to unsupported type 'BYTES'",
    },
}
# fmt: on

BY_CALL: Final[dict[str, str]] = {name: ours for calls in TABLE.values() for name, ours in calls.items()}

# Conversations of cases/grpc_regions.py: the reason, and how ours begins where the two part.
# fmt: off
TALKS: Final[dict[str, tuple[str, str]]] = {
    "part of a file": ("2.51 adds the region's offset twice, and reads what lies behind the mapping", "OK {'model_name': 'identity_fp32', 'model_version': '1', 'outputs': [{'name': 'OUTPUT0', 'datatype': 'FP32', 'shape': ['4']}], 'raw_output_contents': ['AACARAAggEQAQIBEAGCARA==']}"),
    "bad register no key": ("Newer Triton refuses a key that names no file", "INVALID_ARGUMENT cannot register shared memory region 'g' - invalid shm key ''"),
    "bad register no name": ("A region needs a name, as over HTTP: without one, all are unregistered", "INVALID_ARGUMENT 'region name' is necessary to register system shared memory region"),
    "CUDA without a name": ("A region needs a name, as over HTTP: without one, all are unregistered", "INVALID_ARGUMENT 'region name' is necessary to register cuda shared memory region"),
    "CUDA on a GPU below zero": ("Says that there is no GPU", "INVALID_ARGUMENT failed to register CUDA shared memory region: 'c', GPUs not supported"),
    "bad register no size": ("What a region may be is said, not what the kernel said", "INVALID_ARGUMENT failed to register shared memory region 'g': invalid args"),
    "bad register reserved": ("Newer Triton refuses its backend's own regions", "INVALID_ARGUMENT cannot register shared memory region 'g' with key"),
    "bad register an offset that overflows": ("What a region may be is said, not what the kernel said", "INVALID_ARGUMENT failed to register shared memory region 'g': invalid args"),
    "CUDA without GPU": ("Says that there is no GPU", "INVALID_ARGUMENT failed to register CUDA shared memory region: 'c', GPUs not supported"),
    "CUDA with a short handle": ("The handle is looked at first", "INVALID_ARGUMENT 'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"),
    "output": ("An output in shared memory says where it is", "OK {'model_name': 'identity_fp32', 'model_version': '1', 'outputs': [{'name': 'OUTPUT0', 'datatype': 'FP32', 'shape': ['4'], 'parameters': {"),
}
# fmt: on
