"""The levels of a load, as they are typed: a range, or a list.  Layer 5 (bench)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from tisfast import limits
from tisfast.bench.number_flags import check_rate
from tisfast.errors import ConfigError


def listed_levels(given: Any) -> tuple[float, ...]:
    """The levels, where they are written one by one."""
    for name, text, kind in (
        ("--concurrency-range", given.concurrency_range, int),
        ("--request-rate-range", given.request_rate_range, float),
    ):
        if text is not None and "," in text:
            if given.binary_search:
                raise ConfigError(f"--binary-search seeks between two ends: write {name} START:END:STEP, not {text}")
            return _list(name, text, kind)
    return ()


def _list(name: str, text: str, kind: type[int] | type[float]) -> tuple[float, ...]:
    try:
        values = tuple(kind(each) for each in text.split(","))
    except ValueError:
        raise ConfigError(f"Failed to parse {name}. Invalid value provided: {text}") from None
    if values[0] <= 0 or not all(low < high < math.inf for low, high in pairwise(values)):
        raise ConfigError(f"Failed to parse {name}. Levels of a list are more than 0, each more than the last: {text}")
    if len(values) > limits.BENCH_LEVELS_MAX:
        raise ConfigError(f"{name} has {len(values)} levels; at most {limits.BENCH_LEVELS_MAX} are measured")
    _check_ends(name, text, kind, values[0], values[-1])
    return values


def _check_ends(name: str, text: str, kind: type[int] | type[float], least: float, most: float) -> None:
    if kind is float:
        check_rate(name, text, least)
        check_rate(name, text, most)
    if kind is int and most > limits.BENCH_IN_FLIGHT_MAX:
        raise ConfigError(f"{name}={text} has {most} requests under way; at most {limits.BENCH_IN_FLIGHT_MAX} can be")


def level_range(name: str, text: str, kind: type[int] | type[float]) -> tuple[float, float, float]:
    """(start, end, step) of START[:END[:STEP]]; of a list its ends.  Raises ConfigError."""
    if "," in text:
        listed = _list(name, text, kind)
        return listed[0], listed[-1], 1
    parts = text.split(":")
    try:
        values = [kind(each) for each in parts]
    except ValueError:
        raise ConfigError(f"Failed to parse {name}. Invalid value provided: {text}") from None
    if len(values) > 3:
        raise ConfigError(f"Failed to parse {name}. The value does not match <start:end:step>: {text}")
    start = values[0]
    end = values[1] if len(values) > 1 else start
    step = values[2] if len(values) > 2 else 1
    if not all(math.isfinite(each) for each in values):
        raise ConfigError(f"Failed to parse {name}. Each value is a finite number: {text}")
    if start <= 0 or end < 0 or step <= 0:
        raise ConfigError(f"Failed to parse {name}. Start and step are more than 0, the end is 0 or more: {text}")
    if end and end < start:
        raise ConfigError(f"{name}={text} measures nothing: its end {end:g} is below its start {start:g}")
    _check_ends(name, text, kind, start, max(start, end))
    if end and (end - start) / step > limits.BENCH_LEVELS_MAX:
        raise ConfigError(f"{name}={text} has more than {limits.BENCH_LEVELS_MAX} levels")
    return start, end, step
