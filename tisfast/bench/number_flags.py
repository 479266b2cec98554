"""The most that each number of the command line can be: beyond it nothing would end, or fit.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tisfast import limits
from tisfast.bench.results import Settings
from tisfast.errors import ConfigError

DIGITS_MAX: Final = 20
"""Of a whole number of 64 bits."""
INT32_MAX: Final = (1 << 31) - 1
MOST: Final[Mapping[str, tuple[str, int]]] = {
    "-p": ("measurement_interval", limits.BENCH_INTERVAL_MS_MAX),
    "-r": ("max_trials", limits.BENCH_TRIALS_MAX),
    "-l": ("latency_threshold", limits.BENCH_INTERVAL_MS_MAX),
    "-b": ("batch_size", INT32_MAX),
    "--metrics-interval": ("metrics_interval", limits.BENCH_INTERVAL_MS_MAX),
    "--request-count": ("request_count", limits.BENCH_REQUESTS_MAX),
    "--warmup-request-count": ("warmup_request_count", limits.BENCH_REQUESTS_MAX),
    "--measurement-request-count": ("measurement_request_count", limits.BENCH_REQUESTS_MAX),
    "--max-errors": ("max_errors", limits.BENCH_REQUESTS_MAX),
    "--request-period": ("request_period", limits.BENCH_REQUESTS_MAX),
    "--sequence-length": ("sequence_length", limits.BENCH_REQUESTS_MAX),
    "--seed": ("seed", (1 << 64) - 1),
    "--string-length": ("string_length", limits.BENCH_TENSOR_BYTES_MAX),
    "--output-shared-memory-size": ("output_shared_memory_size", limits.BENCH_TENSOR_BYTES_MAX),
    "--trace-rate": ("trace_rate", INT32_MAX),
    "--trace-count": ("trace_count", INT32_MAX),
    "--log-frequency": ("log_frequency", INT32_MAX),
}
"""By flag: its name in the parsed command line, and the most."""
RATE_MIN: Final = 1 / limits.BENCH_SCHEDULE_SECONDS_MAX


def check_numbers(given: Any) -> None:
    """Raises ConfigError."""
    for flag, (name, most) in MOST.items():
        value = getattr(given, name)
        if value is not None and value > most:
            raise ConfigError(f"Failed to parse {flag}. The value must be at most {most}, it is {value}")


def is_whole(text: str) -> bool:
    """It is written with a few digits and nothing else, so that it can be read as a number."""
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX


def check_rate(flag: str, text: str, rate: float) -> None:
    """Raises ConfigError for a rate that nobody can send, or wait for."""
    if not RATE_MIN <= rate <= limits.BENCH_RATE_MAX:
        raise ConfigError(
            f"{flag} {text}: that is a rate of {rate:g} requests/s; it can be from {RATE_MIN:.2g} (one in "
            f"{limits.BENCH_SCHEDULE_SECONDS_MAX:g} s) to {limits.BENCH_RATE_MAX:g}"
        )


def check_duration(settings: Settings, rate: float) -> None:
    """At a rate so many requests take so long.  Raises ConfigError."""
    counts = {
        "--request-count": settings.request_count,
        "--warmup-request-count": settings.warm_up_count,
        "--measurement-request-count": settings.measurement_request_count
        if settings.measurement_mode == "count_windows"
        else 0,
    }
    flag, count = max(counts.items(), key=lambda each: each[1])
    seconds, most = count / rate, limits.BENCH_SCHEDULE_SECONDS_MAX
    if seconds > most:
        raise ConfigError(
            f"{flag} {count}: at {rate:g} requests/s they take {seconds:.4g} s, and {most:g} s at most are waited for"
        )
