"""Sequences, one request after the other; those side by side are in test_sequences.py."""

from __future__ import annotations

from typing import Final

from tests.oracle.cases.table import Case, post, tensor
from tests.oracle.exchange import Request

START: Final = {"sequence_start": True}
END: Final = {"sequence_end": True}


def ask(model: str, milliseconds: int = 0, name: str = "r", *, batch: int = 1, **parameters: object) -> Request:
    """One request of a sequence."""
    data = [[milliseconds]] * batch
    return post(
        model, {"id": name, "inputs": [tensor("MILLISECONDS", "INT32", [batch, 1], data)], "parameters": parameters}
    )


def _cases(model: str) -> list[Case]:
    def case(name: str, rows: str, *requests: Request) -> Case:
        return Case(f"{model}: {name}", rows, requests)

    return [
        case("no id", "9.02", ask(model)),
        case("id 0", "9.01 9.02", ask(model, sequence_id=0, **START)),
        case("id 0 without START", "9.01 9.02", ask(model, sequence_id=0)),
        case("no START", "9.03", ask(model, sequence_id=5)),
        case("END without START", "9.03", ask(model, sequence_id=5, **END)),
        case("two at a time", "9.13", ask(model, batch=2, sequence_id=5, **START)),
        case("a long text", "9.12", ask(model, sequence_id="x" * 129, **START)),
        case("a long text of few characters", "9.12", ask(model, sequence_id="é" * 65, **START)),
        case("one request", "9.04", ask(model, sequence_id=6, **START, **END)),
        case("an id of 41 bits", "9.04", ask(model, sequence_id=2**40 + 3, **START, **END)),
        case("three requests, and a fourth", "9.03 9.04 9.05", ask(model, name="a", sequence_id=7, x="y", **START),
             ask(model, sequence_id=7), ask(model, sequence_id=7, **END), ask(model, sequence_id=7)),
        case("a second START", "9.10", ask(model, sequence_id=8, **START), ask(model, sequence_id=8, **START),
             ask(model, sequence_id=8, **END)),
        case("two in turns", "9.05", ask(model, sequence_id=9, **START), ask(model, sequence_id=10, **START),
             ask(model, sequence_id=9), ask(model, sequence_id=10, **END), ask(model, sequence_id=9, **END)),
    ]  # fmt: skip


CASES: Final[list[Case]] = [case for model in ("sequence_direct", "sequence_oldest") for case in _cases(model)]
