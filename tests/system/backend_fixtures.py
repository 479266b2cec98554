"""A folder of backends, and models of the one of docs/backends.md."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from tests.system.helpers import ROOT

EXAMPLE = ROOT / "examples/backends"
MLP = 'backend: "mlp"\n'


@pytest.fixture
def backends(tmp_path):
    folder = tmp_path / "backends"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def weights():
    chance = np.random.default_rng(3)
    sizes = (4, 8, 2)
    found = {}
    for at in range(len(sizes) - 1):
        found[f"W{at}"] = chance.standard_normal((sizes[at], sizes[at + 1]), np.float32)
        found[f"b{at}"] = chance.standard_normal(sizes[at + 1], np.float32)
    return found


@pytest.fixture
def write_weights(tmp_path, weights):
    def write(name, config=MLP, **arrays):
        folder = tmp_path / "models" / name / "1"
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "model.npz", **(arrays or weights))
        (folder.parent / "config.pbtxt").write_text(config)

    return write
