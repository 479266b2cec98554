"""Records of workers/WIRE.md as bytes with their meaning: what server and worker, in both forms, write and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_PARTS = ("head", "signature", "places", "texts")


class Golden:
    """One record.  `meaning`: what a reader finds; `parts`: its bytes, `tensors` those behind it."""

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.name, self.meaning = name, fields["meaning"]
        self.parts = {part: bytes.fromhex(fields[part]) for part in _PARTS}
        self.tensors = bytes.fromhex(fields.get("tensors", ""))

    @property
    def record(self) -> bytes:
        """All parts of it."""
        return b"".join(self.parts.values())

    @property
    def block(self) -> bytes:
        """Of an answer: with its tensors, each of which begins at a multiple of 64."""
        return self.record + bytes(-len(self.record) % 64) + self.tensors

    def __repr__(self) -> str:
        return self.name


def load(kind: str) -> list[Golden]:
    """All of a kind: `requests` or `answers`."""
    found = json.loads(Path(__file__).with_name("records.json").read_text())
    return [Golden(name, fields) for name, fields in found[kind].items()]


MODEL: dict[str, Any] = {
    "inputs": [["A", "FP32", [2]], ["S", "BYTES", [1]], ["B", "INT32", [-1]]],
    "outputs": [["X", "FP32", [2]], ["Y", "BYTES", [1]], ["Z", "INT64", [-1]]],
    "max_batch_size": 8,
}
"""The model that they are of; S and B are optional."""
