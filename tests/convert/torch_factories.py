"""Modules of PyTorch for `tisfast convert`: named on its command line, and imported by its processes."""

from __future__ import annotations

import os
import signal

import torch


class Network(torch.nn.Module):
    """8 numbers to 3."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.scale = torch.nn.Linear(8, 16), torch.nn.Linear(16, 3), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x))) * self.scale


class Branch(torch.nn.Module):
    """What it does depends on values: a trace has one of two ways."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x.sum() > 0).item()):
            return x * 2
        return x - 1


class Scores(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1)


class Pair(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"total": a + b, "first": a[:, 0]}


class Nested(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return x, [x]


def network() -> torch.nn.Module:
    return Network()


def large() -> torch.nn.Module:
    """FP16 does not hold its numbers."""
    return Network(scale=1e6)


def wide() -> torch.nn.Module:
    """Its sums of 512 are some 2000; one row and several are added up in two orders."""
    torch.manual_seed(0)
    module = torch.nn.Linear(512, 1000, bias=False)
    module.weight.data = torch.randn(1000, 512) * 100
    return module


def number() -> int:
    return 7


class Optional(torch.nn.Module):
    """What stands behind an input that is not given."""

    def forward(
        self, x: torch.Tensor, factor: torch.Tensor | None = None, shift: torch.Tensor | None = None
    ) -> torch.Tensor:
        if factor is not None:
            x = x * factor
        if shift is not None:
            x = x + shift
        return x


class Centred(torch.nn.Module):
    """What a row is answered depends on the rows beside it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)


class Sentences(torch.nn.Module):
    """A transformer over tokens, of any number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.layer(self.embedding(ids), src_key_padding_mask=mask == 0)


class Signals(torch.nn.Module):
    """An LSTM over steps of time."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.steps = torch.nn.LSTM(5, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.steps(x)[0]


class TimeInFront(torch.nn.Module):
    """An LSTM as PyTorch has it by default: the batch is the second dimension."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.steps = torch.nn.LSTM(5, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.steps(x)[0]


class Instants(torch.nn.Module):
    """Steps of time in front, and what each gives is of all before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0)


class Nothing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return x, None


class Sides(torch.nn.Module):
    def forward(self, sides: dict[str, torch.Tensor]) -> torch.Tensor:
        return sides["left"] + sides["right"]


class Trusting(torch.nn.Module):
    """As a native kernel that crashes at sizes that it was not made for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1:] != (7, 5):
            os.kill(os.getpid(), signal.SIGSEGV)
        return x * 2
