"""The example that serves the same digits from files of several frameworks."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.system.helpers import ROOT

for package in ("onnx", "onnxruntime", "openvino", "treelite", "xgboost", "sklearn"):
    pytest.importorskip(package, reason=f"{package} has no wheel for this interpreter")

SECONDS_MAX = 300  # on a busy machine


def test_each_framework_s_model_reads_the_digits(tmp_path):
    command = [sys.executable, str(ROOT / "examples/digits_frameworks.py"), "--keep", str(tmp_path / "models")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    shares = dict(re.findall(r"^(digits_\w+) +(\d+\.\d)%", done.stdout, re.MULTILINE))
    assert sorted(shares) == ["digits_onnx", "digits_openvino", "digits_sklearn", "digits_xgboost"]
    files = sorted(path.name for path in (tmp_path / "models").rglob("*") if path.is_file())
    assert files == ["model.bin", "model.joblib", "model.onnx", "model.xml", "xgboost.ubj"]
