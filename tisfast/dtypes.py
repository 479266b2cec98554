"""Data types of the wire by those of numpy.  Layer 0."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tisfast.types import DATA_TYPES, DataType

BY_DTYPE: Final[dict[np.dtype[Any], DataType]] = {np.dtype(kind.numpy): kind for kind in DATA_TYPES if kind.numpy}
"""Of arrays that say which they are; numpy has no BF16, and its strings have lengths."""
