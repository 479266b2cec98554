"""What a callable returned, held against what it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tisfast.pytriton.model_config.datatypes import is_text
from tisfast.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from tisfast.pytriton.proxy.types import Request

_KINDS: Final = "biufOSU"
_TEXT_KINDS: Final = "OSU"


class TritonResultsValidator:
    """Checks each item that a callable returns or yields."""

    def __init__(self, model_config: TritonModelConfig, strict: bool) -> None:
        """strict: names, types and shapes must be those of the configuration, too."""
        self._name, self._strict, self._batching = model_config.model_name, strict, model_config.batching
        self._outputs = {spec.name: spec for spec in model_config.outputs or ()}

    def validate_responses(self, requests: Sequence[Request], responses: Any) -> None:
        """Raises ValueError, which goes to the clients."""
        if not isinstance(responses, list):
            raise ValueError(f"{self._must} Got outputs={responses} instead.")
        if len(responses) != len(requests):
            raise ValueError(
                f"Number of outputs returned by `{self._name}` inference callable ({len(responses)}) does not match "
                f"number of requests ({len(requests)}) received from Triton."
            )
        for response in responses:
            self._validate(response)

    @property
    def _must(self) -> str:
        return f"Outputs returned by `{self._name}` model callable must be list of response dicts with numpy arrays."

    def _validate(self, response: Any) -> None:
        if not isinstance(response, dict):
            raise ValueError(f"{self._must} Got response={response} instead.")
        if not all(isinstance(name, str) for name in response):
            raise ValueError(f"Not all keys returned by `{self._name}` model callable are string")
        if not all(isinstance(array, np.ndarray) for array in response.values()):
            raise ValueError(f"Not all values returned by `{self._name}` model callable are numpy arrays")
        self._validate_arrays(response)

    def _validate_arrays(self, response: Mapping[str, np.ndarray[Any, Any]]) -> None:
        for name, array in response.items():
            kind = array.dtype.kind
            if kind not in _KINDS:
                raise ValueError(
                    "Only bool, numeric, string, unicode and object arrays are supported by Triton (dtype.kind: "
                    f"{_KINDS}). Returned `{name}` for model `{self._name}` has `{kind}` dtype.kind."
                )
            if kind == "O" and array.size:
                self._validate_first(name, array.flat[0])
            if self._strict:
                self._validate_strictly(name, array)

    def _validate_first(self, name: str, item: Any) -> None:
        if isinstance(item, str):
            raise ValueError(
                f"Use string/byte-string instead of object for passing string in NumPy array from model `{self._name}`."
            )
        if not isinstance(item, bytes):
            raise ValueError(
                f"Only bytes as objects dtype are supported by PyTriton. Returned `{name}` from `{self._name}` has "
                f"`{type(item)}` type."
            )

    def _validate_strictly(self, name: str, array: np.ndarray[Any, Any]) -> None:
        spec = self._outputs.get(name)
        if spec is None:
            raise ValueError(f"Returned output `{name}` is not defined in model config for model `{self._name}`.")
        which = f"Returned output `{name}` for model `{self._name}` has invalid"
        if not _type_fits(spec, array.dtype):
            raise ValueError(f"{which} type. Returned: {array.dtype} ({array.dtype.kind}). Expected: {spec.dtype}.")
        shape = array.shape[1:] if self._batching else array.shape
        if len(shape) != len(spec.shape):
            raise ValueError(f"{which} shapes. Returned: {shape}. Expected: {spec.shape}.")
        if any(wanted not in (-1, found) for found, wanted in zip(shape, spec.shape, strict=True)):
            raise ValueError(f"{which} shapes at one or more positions. Returned: {shape}. Expected: {spec.shape}.")


def _type_fits(spec: TensorSpec, dtype: np.dtype[Any]) -> bool:
    if is_text(spec.dtype):
        return dtype.kind in _TEXT_KINDS
    return dtype.kind not in _TEXT_KINDS and np.issubdtype(dtype, spec.dtype)
