"""What each package's own tests must reach, and the table of what they reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class Floor(NamedTuple):
    """The least share in percent.  lines: of Python and Cython; branches: of Python, None where there are none."""

    lines: float
    branches: float | None


class Counts(NamedTuple):
    """What there is, and how much of it ran."""

    lines: int
    lines_run: int
    branches: int
    branches_run: int

    def __add__(self, other: object) -> Counts:
        """Both together."""
        assert isinstance(other, Counts)
        return Counts(*(mine + its for mine, its in zip(self, other, strict=True)))


class Measured(NamedTuple):
    """One package.  code, tests: lines of code of the package and of its own folder of tests."""

    package: str
    counts: Counts
    code: int
    tests: int

    @property
    def lines(self) -> float | None:
        """Percent of the lines that ran; None where there are none."""
        return percent(self.counts.lines_run, self.counts.lines)

    @property
    def branches(self) -> float | None:
        """Percent of the branches of Python that were taken; None where there are none."""
        return percent(self.counts.branches_run, self.counts.branches)


FLOORS: Final[Mapping[str, Floor]] = {
    "bench": Floor(85, 80),
    "client": Floor(93, 85),
    "codec": Floor(62, 76),  # its processes are killed at their end, so what runs in them is not counted
    "config": Floor(97.5, 95.5),
    "convert": Floor(71, 57),  # its steps run in processes of their own, which are not counted
    "engine": Floor(92, 93),
    "environments": Floor(91, 88),
    "front": Floor(80, 73),
    "functions": Floor(58, 50),  # its servers are tested in tests/system, where tests may wait
    "models": Floor(82, 68),
    "native": Floor(96, 90),
    "operations": Floor(95, 93),
    "processes": Floor(74.5, 56),
    "pytriton": Floor(93.5, 90),
    "repo": Floor(93, 91),
    "storage": Floor(92, 85),
    "telemetry": Floor(91, 87),
    "wire": Floor(90, 90),
}
"""One or two points below what was measured.  A package that has code has a floor."""
HEAD: Final = ("package", "lines", "run %", "floor", "branches", "taken %", "floor", "test:code")


def percent(part: int, whole: int) -> float | None:
    """None of nothing."""
    return 100 * part / whole if whole else None


def shortfalls(found: Sequence[Measured], floors: Mapping[str, Floor]) -> list[str]:
    """A sentence for each package and kind that is below its floor, or has none."""
    said = []
    for each in found:
        if not each.code:
            continue
        if each.package not in floors:
            said.append(f"{each.package} has no floor: add one to FLOORS in tests/coverage/floors.py")
            continue
        floor = floors[each.package]
        for kind, share, least in (("lines", each.lines, floor.lines), ("branches", each.branches, floor.branches)):
            if least is not None and (share is None or share < least):
                reached = "none" if share is None else f"{share:.1f} %"
                said.append(
                    f"tests/{each.package} runs {reached} of the {kind} of {each.package}, and its floor is {least:g} %"
                    ": add tests of what is listed as missing"
                )
    return said


def table(found: Sequence[Measured], floors: Mapping[str, Floor]) -> str:
    """All packages, one a line, in columns."""
    rows = [HEAD, *(row(each, floors.get(each.package)) for each in found)]
    widths = [max(len(line[at]) for line in rows) for at in range(len(HEAD))]
    return "\n".join("  ".join(pad(cell, width, at) for at, (cell, width) in enumerate(zip(line, widths, strict=True)))
                     for line in rows)  # fmt: skip


def pad(cell: str, width: int, at: int) -> str:
    """Names to the left, numbers to the right."""
    return cell.rjust(width) if at else cell.ljust(width)


def row(each: Measured, floor: Floor | None) -> tuple[str, ...]:
    """The cells of one package."""
    return (
        each.package,
        str(each.counts.lines),
        cell(each.lines),
        cell(floor and floor.lines),
        str(each.counts.branches),
        cell(each.branches),
        cell(floor and floor.branches),
        f"{each.tests / each.code:.2f}" if each.code else "-",
    )


def cell(share: float | None) -> str:
    """A share of a table."""
    return "-" if share is None else f"{share:.1f}"


def spans(lines: Sequence[int]) -> str:
    """Line numbers in order, neighbours as one: 3, 7-9."""
    found: list[list[int]] = []
    for line in lines:
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
