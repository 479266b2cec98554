"""`tisfast analyze` finds the known best of a real model: of a graph whose weights are read once for a whole batch."""

from __future__ import annotations

import csv

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime has no wheel for this interpreter")

from tests.system import onnx_models as made  # noqa: E402 - what it needs is there
from tests.system.analyze_models import SHORT, analyze  # noqa: E402

WIDTH = 4096
"""64 MB of weights, more than a core's caches: one sample costs their reading, 16 samples hardly more."""
CONFIG = """
max_batch_size: 1
instance_group [ { kind: KIND_CPU count: 1 } ]
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
"""


def test_batches_are_found_where_the_weights_are_what_costs(tmp_path):
    weights = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32)
    graph = made.model(
        [made.node("MatMul", ["X", "W"], ["Y"])],
        [("X", "FP32", ("n", WIDTH))],
        [("Y", "FP32", ("n", WIDTH))],
        [made.constant("W", weights)],
    )
    made.save(graph, tmp_path / "models" / "layer", CONFIG)
    out = tmp_path / "out"
    code, text, err = analyze(
        *("-m", "layer", "--model-repository", tmp_path / "models", "-o", out, *SHORT, "--explain"),
        *("--max-batch-sizes", "1,16", "--concurrency", "16", "--search", "brute"),
    )
    assert (code, err) == (0, ""), text
    found = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert [row["Max Batch Size"] for row in found] == ["16", "1"], text
    assert "Batches grew from 1 to " in text
    assert "so executing samples together is cheaper" in text
