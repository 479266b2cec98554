"""The server as a table in a notebook: models, rates and a link.  No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from tisfast.functions.signature import Signature
from tisfast.functions.tensors import Slot

HEADS = ("function", "takes", "gives", "requests", "errors", "per second", "mean ms")
Statistics = Sequence[Mapping[str, Any]]
"""Of each model, as /v2/models/stats has them."""


class Counted(NamedTuple):
    """What one model has answered.  per_second: since the table was shown the last time."""

    requests: int
    errors: int
    per_second: float
    mean_ms: float


class Rates:
    """Counts of models, and how they grow from one show to the next."""

    def __init__(self, now: float) -> None:
        """now: seconds of a monotonic clock; so in `count`."""
        self._at, self._before = now, dict[str, int]()

    def count(self, now: float, statistics: Statistics) -> dict[str, Counted]:
        """By the models' names."""
        seconds = max(now - self._at, 1e-3)
        found = {}
        for each in statistics:
            success, fail = each["inference_stats"]["success"], each["inference_stats"]["fail"]
            answered, errors, name = int(success["count"]), int(fail["count"]), str(each["name"])
            requests = answered + errors
            # A model that was served anew has begun to count anew.
            more = requests - self._before.get(name, 0) if requests >= self._before.get(name, 0) else requests
            mean = int(success["ns"]) / answered / 1e6 if answered else 0.0
            found[name] = Counted(requests, errors, more / seconds, mean)
        self._at, self._before = now, {name: each.requests for name, each in found.items()}
        return found


def html_table(url: str, signatures: Iterable[Signature], counted: Mapping[str, Counted]) -> str:
    """A row for each function."""
    heads = "".join(f"<th>{head}</th>" for head in HEADS)
    rows = "".join(_row(url, each, counted.get(each.name, Counted(0, 0, 0.0, 0.0))) for each in signatures)
    link = escape(url, quote=True)
    return (
        f'<div>tisfast server at <a href="{link}" target="_blank">{link}</a>'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(url: str, signature: Signature, counted: Counted) -> str:
    cells = (
        f'<a href="{escape(url, quote=True)}/v2/models/{escape(signature.name, quote=True)}" target="_blank">'
        f"{escape(signature.name)}</a>",
        escape(_told(signature.inputs)),
        escape(_told(signature.outputs)),
        str(counted.requests),
        str(counted.errors),
        f"{counted.per_second:.1f}",
        f"{counted.mean_ms:.3f}" if counted.mean_ms else "",
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _told(slots: Iterable[Slot]) -> str:
    return ", ".join(f"{slot.name}: {slot.datatype.wire}{list(slot.dims)}" for slot in slots)
