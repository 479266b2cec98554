"""--metrics-config KEY=VALUE.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from tisfast import limits
from tisfast.errors import ConfigError

QUANTILES: Final = ((0.5, 0.05), (0.9, 0.01), (0.95, 0.001), (0.99, 0.001), (0.999, 0.001))


@dataclass(frozen=True)
class MetricsSettings:
    """Which families are shown.  quantiles: share and the error that Triton would allow itself; here each is within 3 %
    of the duration."""

    counter_latencies: bool = True
    summary_latencies: bool = False
    histogram_latencies: bool = False
    quantiles: tuple[tuple[float, float], ...] = QUANTILES
    cpu: bool = True
    gpu: bool = True
    interval_ms: float = 2000.0

    def __post_init__(self) -> None:
        """Raises ConfigError for an interval that is none."""
        if not 0 <= self.interval_ms < inf:
            raise ConfigError(
                f"--metrics-interval-ms must be a number of milliseconds from 0, not {self.interval_ms:g}",
                key="metrics-interval-ms",
            )


def read_metrics_config(entries: Sequence[str]) -> dict[str, Any]:
    """Fields of MetricsSettings that these values of --metrics-config ask for.  Raises ConfigError."""
    found: dict[str, Any] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key or not value:
            raise _wrong(entry, "is not of the form KEY=VALUE", "for instance summary_latencies=true")
        if key in ("counter_latencies", "summary_latencies", "histogram_latencies"):
            found[key] = _switch(entry, value)
        elif key == "summary_quantiles":
            found["quantiles"] = _quantiles(entry, value)
        else:
            raise _wrong(
                entry,
                f"unknown setting {key!r}",
                "known: counter_latencies, summary_latencies, histogram_latencies, summary_quantiles",
            )
    return found


def _switch(entry: str, value: str) -> bool:
    word = value.lower()
    if word not in ("true", "false"):
        raise _wrong(entry, f"{value!r} is neither true nor false")
    return word == "true"


def _quantiles(entry: str, value: str) -> tuple[tuple[float, float], ...]:
    pairs = value.split(",")
    if len(pairs) > limits.SUMMARY_QUANTILES_MAX:
        raise _wrong(entry, f"{len(pairs)} quantiles; at most {limits.SUMMARY_QUANTILES_MAX} are served")
    return tuple(_quantile(entry, pair) for pair in pairs)


def _quantile(entry: str, pair: str) -> tuple[float, float]:
    share, colon, error = pair.partition(":")
    if not colon:
        raise _wrong(entry, f"{pair!r} has no colon", "a list of QUANTILE:ERROR, for instance 0.5:0.05,0.9:0.01")
    try:
        numbers = float(share), float(error)
    except ValueError:
        raise _wrong(entry, f"{pair!r} is not of the form QUANTILE:ERROR with two numbers") from None
    if not all(0 <= number <= 1 for number in numbers):
        raise _wrong(entry, f"{pair!r}: quantile and error are numbers from 0 to 1")
    return numbers


def _wrong(entry: str, message: str, hint: str = "") -> ConfigError:
    return ConfigError(f"--metrics-config {entry}: {message}", key="metrics-config", hint=hint)
