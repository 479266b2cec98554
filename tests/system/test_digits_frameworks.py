"""The example that serves the same digits from files of several frameworks.

With PyTorch's: make test-torch; with TensorFlow's: make test-tensorflow.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.system.helpers import ROOT

for package in ("onnx", "onnxruntime", "openvino", "treelite", "xgboost", "sklearn"):
    pytest.importorskip(package, reason=f"{package} has no wheel for this interpreter")

SECONDS_MAX = 300  # on a busy machine
FILES = {
    "digits_onnx": ["model.onnx"],
    "digits_openvino": ["model.bin", "model.xml"],
    "digits_sklearn": ["model.joblib"],
    "digits_tensorflow": ["model.savedmodel"],
    "digits_torch_export": ["model.pt2"],
    "digits_torchscript": ["model.pt", "sample.npz"],
    "digits_xgboost": ["xgboost.ubj"],
}


def test_each_framework_s_model_reads_the_digits(tmp_path):
    command = [sys.executable, str(ROOT / "examples/digits_frameworks.py"), "--keep", str(tmp_path / "models")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    shares = dict(re.findall(r"^(digits_\w+) +(\d+\.\d)%", done.stdout, re.MULTILINE))
    wanted = list(FILES)
    for name in FILES:
        module = "torch" if "torch" in name else "tensorflow" if "tensorflow" in name else "numpy"
        if importlib.util.find_spec(module) is None:
            wanted.remove(name)
            assert f"{name} is left out: there is no {module}" in done.stdout
    assert sorted(shares) == wanted
    for name in wanted:
        assert sorted(path.name for path in (tmp_path / "models" / name / "1").iterdir()) == FILES[name]
