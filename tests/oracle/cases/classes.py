"""Classification."""

# ruff: noqa: E501  (a table: one case, one line)
from __future__ import annotations

from tests.oracle.cases.table import Case, infer, tensor

_ROW = "3.01 3.02 3.03"
_TYPES = ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64")


def _ask(name: str, data: list[object], count: object, **parameters: object) -> Case:
    shape = [len(data), len(data[0])]  # type: ignore[arg-type]
    output = {"name": "OUTPUT0", "parameters": {"classification": count, **parameters}}
    payload = {"inputs": [tensor("INPUT0", "FP32", shape, data)], "outputs": [output]}
    return infer(f"classes: {name}", _ROW, "labelled", payload)


def _typed(datatype: str, data: list[object], count: int = 2) -> Case:
    output = {"name": f"OUT_{datatype}", "parameters": {"classification": count}}
    payload = {"inputs": [tensor(f"IN_{datatype}", datatype, [len(data)], data)], "outputs": [output]}
    return infer(f"classes of {datatype}", "3.02 3.04", "types", payload)


CASES: list[Case] = [
    *(_ask(f"best {n} of 4", [[1, 4, 2, 3]], n) for n in (0, 1, 3, 4, 9, 2**32 - 1)),
    *(_ask(f"{n!r} is no count", [[1, 4]], n) for n in (-1, 1.5, "2", True, None, [1])),
    _ask("a batch", [[1, 4, 2, 3], [8, 7, 6, 5]], 2),
    _ask("binary", [[1, 4, 2, 3]], 2, binary_data=True),
    _ask("a batch in binary", [[1, 4, 2, 3], [8, 7, 6, 5]], 3, binary_data=True),
    _ask("equals keep their order", [[5, 5, 7, 5]], 4),
    _ask("small and large", [[1e-9, -1e-9, 3.4e38, -3.4e38, 0.1]], 5),
    *(_typed(datatype, [3, 100, 7]) for datatype in _TYPES),
    _typed("INT64", [2**63 - 1, -(2**63), 0], 3)._replace(name="classes: the ends of INT64"),
    _typed("BOOL", [True, False]),
    infer("classes of an unknown output", "3.01", "labelled", {"inputs": [tensor("INPUT0", "FP32", [1, 1], [1])], "outputs": [{"name": "X", "parameters": {"classification": 1}}]}),
]  # fmt: skip
