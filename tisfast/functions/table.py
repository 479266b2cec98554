"""The server as a table in a notebook: models, rates and a link.  No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from tisfast.functions.signature import Signature
from tisfast.functions.tensors import Slot

HEADS = ("function", "takes", "gives", "requests", "errors", "mean ms")


def html_table(url: str, signatures: Iterable[Signature], statistics: Sequence[Mapping[str, Any]]) -> str:
    """statistics: of each model, as /v2/models/stats has them."""
    by_name = {str(each["name"]): each["inference_stats"] for each in statistics}
    heads = "".join(f"<th>{head}</th>" for head in HEADS)
    rows = "".join(_row(url, each, by_name.get(each.name)) for each in signatures)
    link = escape(url, quote=True)
    return (
        f'<div>tisfast server at <a href="{link}" target="_blank">{link}</a>'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(url: str, signature: Signature, counted: Mapping[str, Any] | None) -> str:
    success = counted["success"] if counted else {"count": 0, "ns": 0}
    failed = int(counted["fail"]["count"]) if counted else 0
    count, ns = int(success["count"]), int(success["ns"])
    mean = f"{ns / count / 1e6:.3f}" if count else ""
    cells = (
        f'<a href="{escape(url, quote=True)}/v2/models/{escape(signature.name, quote=True)}" target="_blank">'
        f"{escape(signature.name)}</a>",
        escape(_told(signature.inputs)),
        escape(_told(signature.outputs)),
        str(count + failed),
        str(failed),
        mean,
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _told(slots: Iterable[Slot]) -> str:
    return ", ".join(f"{slot.name}: {slot.datatype.wire}{list(slot.dims)}" for slot in slots)
