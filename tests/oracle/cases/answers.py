"""What a model may answer, right and wrong."""

# ruff: noqa: E501  (a table: one case, one line)
from __future__ import annotations

from tests.oracle.cases.table import Case, infer, tensor

_INPUT = tensor("INPUT0", "FP32", [1], [1])

_MODES = (
    "good", "raises", "raises_key_error", "raises_model_exception", "returns_none", "returns_dict", "returns_too_few",
    "returns_too_many", "returns_numbers", "returns_none_inside", "no_outputs", "one_output", "wrong_name", "wrong_type",
    "wrong_shape", "wrong_rank", "same_output_twice", "float16_output", "not_finite", "negative_infinity", "tiny_floats",
    "tensor_without_name", "tensor_of_list", "strided_output", "text_of_all_bytes", "text_of_str", "error_without_code",
    "error_as_text", "error_beside_outputs", "error_unknown", "error_internal", "error_not_found", "error_invalid_arg",
    "error_unavailable", "error_unsupported", "error_already_exists", "error_cancelled", "no_such_mode",
)  # fmt: skip


def _mode(mode: str, name: str = "", **more: object) -> Case:
    payload = {"inputs": [_INPUT], "parameters": {"mode": mode, **more.pop("parameters", {})}, **more}  # type: ignore[dict-item]
    return infer(name or f"model: {mode}", "16.07 16.08 16.11 16.13 16.14 16.15", "misbehave", payload)


CASES: list[Case] = [
    *(_mode(mode) for mode in _MODES),
    *(_mode(mode, f"model, binary: {mode}", parameters={"binary_data_output": True})
      for mode in ("not_finite", "tiny_floats", "text_of_all_bytes", "text_of_str", "strided_output", "float16_output", "wrong_shape")),
    _mode("raises", "model: raises, with id", id="request 9"),
    _mode("error_not_found", "model: error_not_found, with id", id="request 9"),
    _mode("good", "model: first output asked for", outputs=[{"name": "OUTPUT0"}]),
    _mode("one_output", "model: one_output, the missing one asked for", outputs=[{"name": "OUTPUT1"}]),
    _mode("wrong_name", "model: wrong_name, OUTPUT1 asked for", outputs=[{"name": "OUTPUT1"}]),
    _mode("wrong_type", "model: wrong_type, OUTPUT1 asked for", outputs=[{"name": "OUTPUT1"}]),
]  # fmt: skip
