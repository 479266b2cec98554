"""PyTorch models for tests, by name: modules that TorchScript, torch.export and a model.py take alike."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple, Tuple  # noqa: UP035 - of hooks TorchScript knows no other name

import pytest

torch = pytest.importorskip("torch", reason="torch is in an environment of its own: make test-torch")

Tensor = torch.Tensor


class AddSub(torch.nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a + b, a - b


class Identity(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Network(torch.nn.Module):
    """Two layers, 64 to 10."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, hidden), torch.nn.Linear(hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Words(torch.nn.Module):
    def forward(self, words: list[str], times: Tensor) -> tuple[list[str], Tensor]:
        found = [word + "!" for word in words]
        return found, times * 2


class Named(NamedTuple):
    total: Tensor
    difference: Tensor


class NamedOutputs(torch.nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Named:
        return Named(a + b, a - b)


class DictInDictOut(torch.nn.Module):
    def forward(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"total": values["a"] + values["b"], "difference": values["a"] - values["b"]}


class ListOfTensors(torch.nn.Module):
    def forward(self, a: Tensor) -> list[Tensor]:
        return [a, a * 2]


class Hooked(torch.nn.Module):
    """Its output has one more, by a hook that is saved with it, and its input twice as much, by another."""

    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(_one_more)
        self.register_forward_pre_hook(_twice)

    def forward(self, a: Tensor) -> Tensor:
        return a * 1


def _one_more(self, given: Tuple[Tensor], found: Tensor) -> Tensor:  # noqa: UP006
    return found + 1


def _twice(self, given: Tuple[Tensor]) -> Tuple[Tensor]:  # noqa: UP006
    return (given[0] * 2,)


class Defaults(torch.nn.Module):
    def forward(self, a: Tensor, times: int = 3, b: Tensor | None = None) -> Tensor:
        return a * times if b is None else a * times + b


class Scalar(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum()


class Number(torch.nn.Module):
    def forward(self, x: Tensor) -> int:
        return x.size(0)


class InPlace(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.add_(1)
        return x


class Flat(torch.nn.Module):
    """`view` refuses what does not lie in one piece."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(-1).reshape(x.size(0), -1).t().contiguous().t()


class Accumulator(torch.nn.Module):
    """Of sequences: the sum of what was sent since START, kept as state."""

    def forward(self, x: Tensor, start: Tensor, who: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        total = torch.where(start.to(torch.bool), torch.zeros_like(before), before) + x
        return total, who, total


class Grows(torch.nn.Module):
    """As many columns as the number says."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros([1, int(x.max().item())])


class Stray(torch.nn.Module):
    """Counts 8 into one of four places without a look at which; -1 is what the C library keeps before them."""

    def forward(self, x: Tensor) -> Tensor:
        eight = torch.full([1], 8, dtype=torch.int64)
        places = torch.ops.aten._sparse_coo_tensor_unsafe(x.reshape(1, 1), eight, [4]).to_dense()
        return x + places.sum()


class Nested(torch.nn.Module):
    def forward(self, x: Tensor, values: Any) -> dict[str, Tensor]:
        return {"sum": x + values["a"], "product": x * values["b"][0]}


def script(module: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(module)


def save(module: Any, folder: Path, config: str = "", version: str = "1", file: str = "model.pt") -> Path:
    """Write the module as TorchScript: a version of the model in `folder`."""
    (folder / version).mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script(module).save(str(folder / version / file))
    if config:
        (folder / "config.pbtxt").write_text(config)
    return folder


def export(module: Any, folder: Path, arguments: tuple, shapes: Any = None, config: str = "") -> Path:
    """Write the module as a program of torch.export: version 1 of the model in `folder`."""
    (folder / "1").mkdir(parents=True, exist_ok=True)
    torch.export.save(program(module, arguments, shapes), folder / "1/model.pt2")
    if config:
        (folder / "config.pbtxt").write_text(config)
    return folder


def compile_package(module: Any, folder: Path, arguments: tuple, shapes: Any = None) -> Path:
    """The same as a package of AOTInductor.  Takes some ten seconds, and a C++ compiler."""
    (folder / "1").mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = program(module, arguments, shapes)
        torch._inductor.aoti_compile_and_package(made, package_path=str(folder / "1/model.pt2"))
    return folder


def program(module: Any, arguments: tuple, shapes: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module, arguments, dynamic_shapes=shapes)


def reason(server: Any, name: str) -> str:
    """Why a model is not served."""
    found = server.ask("POST", "/v2/repository/index")[1]
    return next(each.get("reason", "") for each in found if each["name"] == name)


def tensor(name: str, dtype: str = "FP32", dims: str = "-1", more: str = "") -> str:
    """An input or an output in a configuration."""
    return f'{{ name: "{name}" data_type: TYPE_{dtype} dims: [ {dims} ] {more} }}'


def config(inputs: list[str], outputs: list[str], more: str = "max_batch_size: 8") -> str:
    return f'backend: "pytorch" {more}\ninput [ {", ".join(inputs)} ]\noutput [ {", ".join(outputs)} ]\n'
