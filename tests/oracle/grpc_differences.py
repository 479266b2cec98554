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
    "Row 13.25: newer Triton says why a model is not ready; 2.51 answers false to whatever it does not know.": {
        "ModelReady of version 0": "NOT_FOUND Request for unknown model: 'add_sub' version 0 is not found",
        "ModelReady of version 99": "NOT_FOUND Request for unknown model: 'add_sub' version 99 is not found",
        "ModelReady of nobody": "INVALID_ARGUMENT Request for unknown model: 'nobody' is not found",
        "ModelReady of an unloaded version": "NOT_FOUND Request for unknown model: 'latest' version 1 is not found",
    },
    "Models cannot be loaded while the server runs yet.": {
        "RepositoryModelLoad": "UNIMPLEMENTED loading a model at run time ('add_sub')",
        "RepositoryModelUnload": "UNIMPLEMENTED unloading a model at run time ('add_sub')",
    },
    "Tensors that belong to no input are an error of the client's, not to be dropped in silence.": {
        "raw surplus": "INVALID_ARGUMENT unexpected raw_input_contents: 3 entries for 2 inputs",
    },
    "Newer Triton names an impossible shape for what it is; more dimensions than numpy has are refused by their number.": {
        "negative shape": "INVALID_ARGUMENT invalid shape for input 'INPUT0': shape [-4] contains one or more invalid dimensions",
        "rank 41": "INVALID_ARGUMENT invalid shape for input 'INPUT0': 41 dimensions, 32 is the limit",
    },
    "Row 13.28: newer Triton refuses an output that is asked for twice, with HTTP's text.": {
        "outputs: twice": "INVALID_ARGUMENT [request id: <id_unknown>] output 'OUTPUT1' already exists in request",
    },
    "Of two inputs that do not fit, the first is named; 2.51 names whichever its hash table has first.": {
        "batch without dimension": "INVALID_ARGUMENT [request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'batched'.",
    },
    "A negative timeout is refused, as over HTTP; 2.51 takes it for half a million years.": {
        "timeout of -1": "INVALID_ARGUMENT invalid value for 'timeout', expected value >= 0. (got -1)",
    },
    "Rows 13.08 and 13.14: model_version is always filled; 2.51 leaves it out of failures.": {
        "stream: model fails, then good": "OK {'error_message': 'the model says NOT_FOUND', 'infer_response': {'model_name': 'misbehave', 'model_version': '1', 'id': 'f', 'parameters': {'triton_final_response': {'bool_param': True}}}}",
    },
}
# fmt: on

BY_CALL: Final[dict[str, str]] = {name: ours for calls in TABLE.values() for name, ours in calls.items()}
