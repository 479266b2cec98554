"""Plans for the stand-in for TensorRT, and an environment and a GPU for models of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STAND_IN = Path(__file__).parent / "tensorrt_stand_in"
VERSION = (10, 7, 0, 23)


def tensor(name: str, shape: Any, *profiles: Any, dtype: str = "FLOAT", **more: Any) -> dict[str, Any]:
    """One input or output.  profiles: (smallest, best, largest) shape in each; of none, its own shape in one."""
    ranges = profiles or ((shape, shape, shape),)
    return {"name": name, "shape": shape, "dtype": dtype, "profiles": ranges, **more}


def plan(inputs: Any, outputs: Any, version: tuple[int, ...] = VERSION, **more: Any) -> bytes:
    """A plan.  outputs: tensors with `make`, an expression of numpy over the inputs' names."""
    said = {"inputs": inputs, "outputs": outputs, "profiles": len(inputs[0]["profiles"]), **more}
    return b"ftrt" + bytes(20) + bytes(version) + json.dumps(said).encode()


def doubler(most: int = 8, dtype: str = "FLOAT", make: str = "X + X", **more: Any) -> bytes:
    """Rows of four, each doubled."""
    rows = tensor("X", [-1, 4], ([1, 4], [most, 4], [most, 4]), dtype=dtype)
    return plan([rows], [tensor("Y", [-1, 4], dtype=dtype, make=make)], **more)


def two_profiles(make: str = "X * 2", **more: Any) -> bytes:
    """Rows of any length: profile 0 up to 2 rows of 1 to 8, profile 1 up to 16 rows of 4 to 64."""
    ranges = [([1, 1], [1, 4], [2, 8]), ([1, 4], [8, 32], [16, 64])]
    return plan([tensor("X", [-1, -1], *ranges)], [tensor("Y", [-1, -1], make=make)], **more)


def parameters(**said: str) -> str:
    """Of a configuration."""
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{said[key]}" }} }}\n' for key in said)


def environment(folder: Path, *more: Path) -> Path:
    """An environment with numpy, and the folders of `more`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    only = folder / "only"
    only.mkdir()
    for name in ("numpy", "numpy.libs"):
        found = Path(np.__file__).parent.with_name(name)
        if found.exists():
            (only / name).symlink_to(found)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "only.pth").write_text("\n".join(map(str, (only, *more))))
    return folder


@pytest.fixture(scope="session")
def driver_libraries(tmp_path_factory: Any) -> Path:
    """A folder with the stand-in for the driver."""
    folder: Path = tmp_path_factory.mktemp("driver")
    compiler = os.environ.get("CC", "cc").split()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        command = [*compiler, "-shared", "-fPIC", "-o", str(folder / name), str(STAND_IN / "driver.c")]
        subprocess.run(command, check=True)
    return folder


@pytest.fixture
def gpu_stand_in(driver_libraries: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GPU for the servers of the test."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_libraries))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return driver_libraries


@pytest.fixture
def write_plan(tmp_path: Path, gpu_stand_in: Path) -> Any:
    """Write a model into the test's repository: write_plan(name, plan, config)."""
    folder = environment(tmp_path / "with_tensorrt", STAND_IN)

    def written(name: str, content: bytes, config: str = "", backend: str = 'backend: "tensorrt"') -> Path:
        model = tmp_path / "models" / name
        (model / "1").mkdir(parents=True, exist_ok=True)
        (model / "1/model.plan").write_bytes(content)
        (model / "config.pbtxt").write_text(f"{backend}\n{config}\n{parameters(EXECUTION_ENV_PATH=str(folder))}")
        return model / "1/model.plan"

    written.environment = folder  # type: ignore[attr-defined]
    return written
