"""Batches of requests with one tensor."""

from __future__ import annotations

import struct

from tests.workers.driver import FP32, record
from tests.workers.models import HEAD

ONE = {"max_batch_size": 8, "inputs": [["A", FP32, [-1], None]], "outputs": [["X", FP32, [-1], None]]}


def arrays(body, more=""):
    """A model whose execute_batch is `body` (a: the array of input A)."""
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    start = "    def execute_batch(self, i):\n        a = i.get('A')\n"
    return f"{HEAD}\nclass TritonPythonModel:\n    kept = []\n{more}\n{start}{lines}"


def row(instance, *values, batch=1):
    """A tensor of FP32 in the input arena: shape, place."""
    shape = (batch, len(values) // batch)
    return shape, instance.plane.place(struct.pack(f"<{len(values)}f", *values))


def push(instance, *rows, **options):
    return instance.plane.push([record([(0, FP32, *each)], batch=each[0][0], **options) for each in rows])
