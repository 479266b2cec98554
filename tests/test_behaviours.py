"""docs/behaviours.md names tests that exist, and requests that both servers answer alike."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.oracle import differences, grpc_differences
from tests.oracle.cases import everything, grpc_calls

TESTS = Path(__file__).parent
LINES = [line for line in (TESTS.parent / "docs/behaviours.md").read_text().splitlines() if line.startswith("- ")]
REFERENCE = re.compile(r'\[("[^"]+"|[\w/]+\.py::\w+)\]')


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Names of the test functions of a file."""
    return frozenset(n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef))


@cache
def answered_alike() -> frozenset[str]:
    """Names of requests and calls of the oracle's tables of which no difference is listed."""
    names = {case.name for case in everything.ALL} | {call.name for call in grpc_calls.CALLS}
    return frozenset(names - set(differences.BY_CASE) - set(grpc_differences.BY_CALL))


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[2:].partition(" [")[0][:60])
def test_a_behaviour_has_a_test(line):
    behaviour, *_ = line.partition(" [")
    found = REFERENCE.findall(line)
    assert found and line == behaviour + "".join(f" [{each}]" for each in found)
    for each in found:
        if each.startswith('"'):
            assert each.strip('"') in answered_alike()
        else:
            file, _, name = each.partition("::")
            assert name in functions_of(TESTS / file) and name.startswith("test_")


def test_a_behaviour_stands_there_once():
    assert len(set(LINES)) == len(LINES) > 100
