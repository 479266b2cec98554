"""NumPy types of tensors and their names in a model configuration."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tisfast.types import DATA_TYPES

TEXT: Final = "TYPE_STRING"
TEXT_TYPES: Final = (bytes, object, np.bytes_, np.object_)
"""All of them are the server's BYTES."""
_BY_NAME: Final[dict[str, Any]] = {
    **{each.config: np.dtype(each.numpy).type for each in DATA_TYPES if each.numpy not in {"", "O"}},
    TEXT: np.bytes_,
}
_BFLOAT16: Final = "TYPE_BF16"


def is_text(dtype: Any) -> bool:
    """Whether tensors of this declared type hold strings."""
    return any(dtype is each for each in TEXT_TYPES)


def config_name(dtype: Any) -> str | None:
    """TYPE_FP32 and the like; None for what no tensor can be."""
    if is_text(dtype):
        return TEXT
    if dtype is None:  # NumPy takes it for float64
        return None
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        return None
    if wanted.name == "bfloat16":
        return _BFLOAT16
    return next((name for name, known in _BY_NAME.items() if name != TEXT and np.dtype(known) == wanted), None)


def numpy_type(name: str) -> Any | None:
    """The scalar type of TYPE_FP32 and the like; None where there is none.  TYPE_BF16 needs ml_dtypes."""
    if name == _BFLOAT16:
        try:
            import ml_dtypes  # noqa: PLC0415 - an extra of the user's
        except ModuleNotFoundError:
            return None
        return ml_dtypes.bfloat16
    return _BY_NAME.get(name)
