"""A hundred loads, replacements and unloads of a TorchScript model under load: all answers right, nothing grows."""

from __future__ import annotations

import warnings

import pytest

from tests.system.backend_growth import ROWS, Adder, nothing_grows, sides

torch = pytest.importorskip("torch", reason="torch is in an environment of its own: make test-torch")


def torch_adder():
    class Add(torch.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.n = float(n)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.n

    def write(folder, n):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is what Triton serves
            torch.jit.trace(Add(n), torch.zeros(2, 1)).save(str(folder / "model.pt"))

    return Adder("model.pt", write, lambda n: ROWS + n, 'backend: "pytorch" max_batch_size: 8' + sides("OUTPUT__0"))


def test_a_hundred_loads_of_torchscript_under_load_leave_nothing(serve, tmp_path):
    nothing_grows(serve, torch_adder(), "x", tmp_path / "models")
