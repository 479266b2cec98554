"""Rows that hold tisfast.pytriton to the real PyTriton (perf.beside_pytriton measures them)."""

from __future__ import annotations

from typing import Final, NamedTuple

from perf.bars import Bar
from perf.clients import Load

GROUP: Final = "pytriton"
IDLE_CLIENTS: Final = 4
_ADD, _IMAGE = f"{GROUP}: add, 4 floats", f"{GROUP}: identity, 600 KB"
_IMAGE_CASE: Final = "identity_fp32:INPUT0:150528"

BARS: Final = (
    Bar(_ADD, Load("perf_analyzer", "add_sub", 1), 0.12, 8.0),
    Bar(_ADD, Load("perf_analyzer", "add_sub", 16), 0.12, 8.0),
    Bar(_ADD, Load("wrk", "add_sub/bin1x4", 16), 0.12, 8.0),
    Bar(_ADD, Load("perf_analyzer", "add_sub", 1, "grpc"), 0.12, 8.0),
    Bar(_ADD, Load("perf_analyzer", "add_sub", 16, "grpc"), 0.12, 8.0),
    Bar(_IMAGE, Load("perf_analyzer", _IMAGE_CASE, 1), 0.20, None),
    Bar(_IMAGE, Load("perf_analyzer", _IMAGE_CASE, 1, "grpc"), 0.20, None),
)
NUMBERS_HEAD: Final = "| what | PyTriton | tisfast | ratio | at most | |\n|---|---|---|---|---|---|"


class Number(NamedTuple):
    """One number of each program.  most: of the ratio; most_of_ours: of ours alone, in the unit; 0: no such bar."""

    title: str
    unit: str
    most: float
    most_of_ours: float = 0.0

    def line(self) -> str:
        """What selects this row (perf.bench --only)."""
        return f"{GROUP}: {self.title}"


START: Final = Number("until ready, one function, the whole program", "s", 0.2)
RUN: Final = Number("until ready, one function, run() alone", "s", 0.2)
BIND: Final = Number("bind on a running server", "s", 1.0, 0.15)
STOP: Final = Number(f"stop() with {IDLE_CLIENTS} idle clients connected", "s", 1.0, 0.5)
PROCESSES: Final = Number("processes, one function", "", 1.0)
MEMORY: Final = Number("idle memory (Pss) of the program and its server, one function", "MB", 1.0)
NUMBERS: Final = (START, RUN, BIND, STOP, PROCESSES, MEMORY)


class Beside(NamedTuple):
    """A number and what it was, medians."""

    number: Number
    a: float
    b: float

    @property
    def ratio(self) -> float:
        """Ours over PyTriton's."""
        return self.b / max(self.a, 1e-9)

    @property
    def met(self) -> bool:
        """Whether all its bars are."""
        return self.ratio <= self.number.most and (not self.number.most_of_ours or self.b <= self.number.most_of_ours)

    def row(self) -> str:
        """A line under NUMBERS_HEAD."""
        number = self.number
        sides = [f"{each:.{0 if not number.unit else 2}f} {number.unit}".strip() for each in (self.a, self.b)]
        most = f"{number.most_of_ours:.2f} {number.unit}" if number.most_of_ours else f"{number.most:.2f}"
        return (
            "| "
            + " | ".join([number.line(), *sides, f"{self.ratio:.3f}", most, "met" if self.met else "**missed**"])
            + " |"
        )

    def facts(self) -> dict[str, object]:
        """For programs."""
        return {"title": self.number.line(), "unit": self.number.unit, "a": self.a, "b": self.b,
                "ratio": self.ratio, "met": self.met}  # fmt: skip
