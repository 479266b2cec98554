"""One input or output of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Tensor:
    """Shape and type of one input or output.

    shape: without the batch dimension; -1 is any size.  dtype: a NumPy scalar type, an np.dtype, or bytes or object for
    strings.  name: without one, INPUT_1, OUTPUT_1 and so on.  optional: of inputs only.
    """

    shape: tuple[int, ...]
    dtype: Any
    name: str | None = None
    optional: bool | None = False

    def __post_init__(self) -> None:
        """An np.dtype becomes its scalar type."""
        if isinstance(self.dtype, np.dtype):
            object.__setattr__(self, "dtype", self.dtype.type)
