"""Floors: who is below is named with figures; the table has all packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coverage.floors import FLOORS, Counts, Floor, Measured, shortfalls, spans, table

ROOT = Path(__file__).resolve().parents[2]


def package(name="wire", lines=(100, 90), branches=(50, 40), code=200, tests=100):
    return Measured(name, Counts(lines[0], lines[1], branches[0], branches[1]), code, tests)


def test_a_package_at_its_floors_is_not_named():
    assert shortfalls([package()], {"wire": Floor(90, 80)}) == []


@pytest.mark.parametrize(
    ("floor", "words"),
    [
        (Floor(90.1, 80), ["tests/wire runs 90.0 % of the lines of wire, and its floor is 90.1 %"]),
        (Floor(90, 81), ["tests/wire runs 80.0 % of the branches of wire, and its floor is 81 %"]),
        (Floor(91, 81), ["90.0 % of the lines", "80.0 % of the branches"]),
    ],
)
def test_what_is_below_its_floor_is_named_with_both_figures(floor, words):
    said = shortfalls([package()], {"wire": floor})
    assert len(said) == len(words)
    assert all(word in text for word, text in zip(words, said, strict=True))


def test_a_package_without_a_floor_is_named():
    (said,) = shortfalls([package("new")], {"wire": Floor(90, 80)})
    assert said == "new has no floor: add one to FLOORS in tests/coverage/floors.py"


def test_a_package_without_code_needs_no_floor():
    assert shortfalls([package("bench", (0, 0), (0, 0), 0, 0)], {}) == []


def test_a_package_with_code_and_without_tests_is_below_any_floor():
    said = shortfalls([package("wire", (0, 0), (0, 0), 100, 0)], {"wire": Floor(1, None)})
    assert [text.partition(",")[0] for text in said] == ["tests/wire runs none of the lines of wire"]


def test_branches_are_asked_where_there_is_a_floor_of_them():
    cython = package(branches=(0, 0))
    assert shortfalls([cython], {"wire": Floor(90, None)}) == []
    (said,) = shortfalls([cython], {"wire": Floor(90, 50)})
    assert "runs none of the branches" in said


def test_the_table_has_a_line_for_each_package_in_columns():
    lines = table([package(), package("bench", (0, 0), (0, 0), 0, 0)], {"wire": Floor(88, 78.5)}).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["wire", "100", "90.0", "88.0", "50", "80.0", "78.5", "0.50"],
        ["bench", "0", "-", "-", "0", "-", "-", "-"],
    ]
    assert len({len(line) for line in lines}) == 1


def test_counts_add_up():
    assert Counts(1, 2, 3, 4) + Counts(10, 20, 30, 40) == Counts(11, 22, 33, 44)


@pytest.mark.parametrize(
    ("lines", "text"), [([], ""), ([3], "3"), ([3, 4], "3-4"), ([1, 3, 4, 5, 9], "1, 3-5, 9"), ([7, 9], "7, 9")]
)
def test_neighbouring_lines_are_one_span(lines, text):
    assert spans(lines) == text


def test_floors_are_shares_that_can_be_reached():
    for floor in FLOORS.values():
        assert 0 < floor.lines <= 100
        assert floor.branches is None or 0 < floor.branches <= 100


def test_floors_are_of_packages_that_are_there():
    assert {name for name in FLOORS if not (ROOT / "tisfast" / name / "__init__.py").exists()} == set()
