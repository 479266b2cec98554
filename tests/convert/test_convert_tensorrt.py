"""Plans of TensorRT, by a stand-in for its builder, on a stand-in for the driver: it was not run on hardware."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from tests.convert.made_models import converted, save  # noqa: E402
from tests.system import onnx_models as made  # noqa: E402
from tests.system.tensorrt_plans import STAND_IN, driver_libraries, environment, gpu_stand_in  # noqa: E402, F401 - fixtures
from tisfast.local_server import ROOT  # noqa: E402

X = np.arange(12, dtype=np.float32).reshape(3, 4)
SHORT = ["--target", "tensorrt", "--seconds", "0.1", "--concurrency", "1", "--max-batch-size", "4"]


def twice(folder: Path) -> Path:
    graph = made.model([made.node("Add", ["X", "X"], ["Y"])], [("X", "FP32", ("n", 4))], [("Y", "FP32", ("n", 4))])
    return save(folder, "twice.onnx", graph)


def test_a_plan_is_built_for_the_samples_and_served(gpu_stand_in, tmp_path):  # noqa: F811
    """In an environment that has the package: workers find it there alone."""
    python = environment(tmp_path / "env", STAND_IN, Path(sysconfig.get_path("purelib"))) / "bin" / "python"
    np.savez(tmp_path / "samples.npz", X=X)
    arguments = [twice(tmp_path), "--samples", tmp_path / "samples.npz", "-o", tmp_path / "out", *SHORT]
    command = [python, "-m", "tisfast", "convert", *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    whole, half = json.loads((tmp_path / "out" / "report.json").read_text())["tries"]
    assert (whole["name"], whole["status"], whole["max_absolute"]) == ("tensorrt fp32", "ok", 0)
    assert (tmp_path / "out" / "twice" / "1" / "model.plan").read_bytes().startswith(b"ftrt")
    # The graph in FP16 has casts, which the stand-in does not read.
    assert half["status"] == "failed" and "No importer registered for op: Cast" in half["reason"]


def test_without_the_package_it_is_skipped(tmp_path):
    found = converted(twice(tmp_path), samples={"X": X}, targets=["tensorrt"], precisions=["fp32"])
    assert found.best is None and "pip install 'tisfast[tensorrt]'" in found.tries[0].reason
