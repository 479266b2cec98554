"""Models written in place for the tests of the worker runtime, and what their answers are made of."""

from __future__ import annotations

import pytest

HEAD = """
import numpy as np, os, sys, gc, asyncio
import triton_python_backend_utils as pb_utils
def arr(r, name="A"):
    return pb_utils.get_input_tensor_by_name(r, name).as_numpy()
def answer(array, name="X", **options):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)], **options)
"""


def model(body: str, more: str = "") -> str:
    """A model whose execute is `body` (r: the first request; rs: all)."""
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    execute = f"    def execute(self, rs):\n        r = rs[0]\n{lines}"
    return f"{HEAD}\nclass TritonPythonModel:\n    kept = []\n{more}\n{execute}"


# For tests of the runtime's numpy side: under the oldest interpreter as well.
both = pytest.mark.parametrize("nursery", ["this", "oldest"], indirect=True)
FINAL, RETAINED, ANSWER, ERROR, RELEASE = 1, 2, 2, 3, 4
