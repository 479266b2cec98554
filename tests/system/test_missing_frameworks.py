"""Models whose framework is missing from their environment: a sentence with the command that mends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.system.array_calls import UNREADY, reason_of

MODELS = {
    "fil": ("xgboost.json", "treelite"),
    "sklearn": ("model.joblib", "scikit-learn"),
    "openvino": ("model.xml", "openvino"),
    "tensorflow": ("model.graphdef", "tensorflow-cpu"),
    "onnxruntime": ("model.onnx", "onnxruntime"),
}


@pytest.fixture
def bare(tmp_path):
    """An environment with numpy, and nothing else."""
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    only = tmp_path / "only"
    only.mkdir()
    for name in ("numpy", "numpy.libs"):
        found = Path(np.__file__).parent.with_name(name)
        if found.exists():
            (only / name).symlink_to(found)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "only.pth").write_text(str(only))
    return folder


def test_the_package_and_the_command_are_named(serve, tmp_path, bare):
    for backend, (file, _) in MODELS.items():
        version = tmp_path / "models" / backend / "1"
        version.mkdir(parents=True)
        (version / file).write_bytes(b"{}")
        (version.parent / "config.pbtxt").write_text(
            f'backend: "{backend}" parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{bare}" }} }}'
        )
    server = serve(*UNREADY).ready()
    for backend, (_, package) in MODELS.items():
        reason = reason_of(server, backend)
        assert f"package '{package}'" in reason and "Traceback" not in reason, backend
        assert f"{bare}/bin/python3 -m pip install {package}" in reason, backend
    assert not [record for record in server.log if "cannot be imported" in record["message"]], server.text()
