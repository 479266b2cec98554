"""Values of each data type, and its names in a configuration."""

from __future__ import annotations

import numpy as np

VALUES = {
    "BOOL": np.array([True, False, True]),
    **{
        f"{sign}INT{bits}": np.array([0, 1, 127], f"{sign.lower()}int{bits}")
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
    "FP16": np.array([0.5, -2, np.inf], np.float16),
    "FP32": np.array([0.1, -2, np.nan], np.float32),
    "FP64": np.array([0.1, -2e300, 3], np.float64),
    "BYTES": np.array([b"", b"text", "\N{SNOWMAN}".encode()], object),
}
CONFIG_NAMES = {"BYTES": "STRING"}
