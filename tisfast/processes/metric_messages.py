"""Messages of workers about their models' metrics, and the answers (workers/WIRE.md, Custom metrics).

Layer 4 (processes).
"""

from __future__ import annotations

from typing import Any, Final

from tisfast.engine.custom_metrics import KINDS, CustomMetrics, MetricRefused

KINDS_OF_MESSAGE: Final = ("metric_family", "metric", "metric_drop")
Message = dict[str, Any]


def answer(metrics: CustomMetrics, worker: str, message: Message) -> Message | None:
    """The answer to one of KINDS_OF_MESSAGE; None where none is due."""
    if message["t"] == "metric_drop":
        if isinstance(message.get("family"), int):
            metrics.drop(worker, message["family"])
        return None
    reply: Message = {"t": "answer", "n": message.get("n", 0)}
    try:
        return {**reply, **_declared(metrics, worker, message)}
    except MetricRefused as refused:
        return {**reply, "error": refused.message}
    except (KeyError, TypeError, ValueError) as error:
        return {**reply, "error": f"a message of no known form: {error!r}"}


def _declared(metrics: CustomMetrics, worker: str, message: Message) -> Message:
    family = int(message["family"])
    if message["t"] == "metric_family":
        kind = int(message["kind"])
        if not 0 <= kind < len(KINDS):
            raise ValueError(f"kind {kind}")
        metrics.declare(worker, family, str(message["name"]), str(message["text"]), kind)
        return {}
    labels = {str(name): str(value) for name, value in message["labels"].items()}
    first, bounds = metrics.add(worker, family, labels, [float(bound) for bound in message["buckets"]])
    return {"cell": first, "buckets": bounds}
