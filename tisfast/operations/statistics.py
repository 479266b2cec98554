"""Statistics of model versions as JSON-able values.  Layer 4 (operations)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tisfast.engine.interface import Runtime


def model_statistics(runtimes: Iterable[Runtime]) -> dict[str, list[dict[str, Any]]]:
    """The whole reply for these model versions."""
    return {"model_stats": list(each(runtimes))}


def each(runtimes: Iterable[Runtime]) -> Iterator[dict[str, Any]]:
    """The entries of the reply."""
    return map(_version, runtimes)


def _version(runtime: Runtime) -> dict[str, Any]:
    stats = runtime.stats
    return {
        "name": runtime.signature.name,
        "version": runtime.signature.version,
        "last_inference": stats.last_inference_ms,
        "inference_count": stats.inference_count,
        "execution_count": stats.execution_count,
        "inference_stats": stats.inference_stats(),
        "response_stats": stats.response_stats(),  # of decoupled models
        "batch_stats": stats.batches(),
        "memory_usage": [],  # as measured by backends; Python models measure nothing
    }
