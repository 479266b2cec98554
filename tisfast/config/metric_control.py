"""Metrics of one model, configured by `model_metrics`.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from tisfast import limits

if TYPE_CHECKING:
    from tisfast.config.error_report import Report
    from tisfast.config.schema import Message

FIRST_RESPONSE: Final = "nv_inference_first_response_histogram_ms"
FIRST_RESPONSE_BOUNDS_MS: Final = (100.0, 500.0, 2000.0, 5000.0)


def first_response_bounds_ms(config: dict[str, Any]) -> tuple[float, ...]:
    """Upper ends of the buckets of the model's first-response histogram.  config: normalised, a dict."""
    for control in (config.get("model_metrics") or {}).get("metric_control", ()):
        if control.get("metric_identifier", {}).get("family") == FIRST_RESPONSE:
            return tuple(float(bound) for bound in (control.get("histogram_options") or {}).get("buckets", ()))
    return FIRST_RESPONSE_BOUNDS_MS


def check_metric_control(message: Message, report: Report) -> None:
    """Report families that no buckets can be chosen for, and buckets that are none."""
    for position, control in enumerate(message.model_metrics.metric_control):
        path = ("model_metrics", "metric_control", position)
        family, bounds = control.metric_identifier.family, list(control.histogram_options.buckets)
        if family != FIRST_RESPONSE:
            report.wrong(f"model_metrics names the family {family!r}; it can change only {FIRST_RESPONSE}", path)
        elif not _ascending(bounds) or not 0 < len(bounds) <= limits.HISTOGRAM_BOUNDS_MAX:
            report.wrong(
                f"histogram_options.buckets of {family} must be 1 to {limits.HISTOGRAM_BOUNDS_MAX} ascending numbers, "
                f"not {bounds}",
                path,
            )


def _ascending(bounds: Iterable[float]) -> bool:
    """The last bucket of every histogram, which is infinite, is none of these."""
    found = list(bounds)
    return all(map(isfinite, found)) and all(one < other for one, other in zip(found, found[1:], strict=False))
