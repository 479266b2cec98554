"""Flags of a file and flags that are typed, which win.  Layer 5 (analyze)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from tisfast.analyze.aims import OTHER_NAMES
from tisfast.bench.flags import parser as bench_parser
from tisfast.errors import ConfigError

Unit = tuple[str, ...]
"""A flag with its value."""

INSTEAD: Final = (
    {"concurrency", "request_rate", "request_rate_search_enable"},
    {"model_repository", "url"},
)
"""Of each of these one holds: a typed one is instead of a file's other one."""
BOUNDS: Final = {
    "latency_budget": "latency_p99<=",
    "min_throughput": "throughput>=",
    "max_memory": "memory<=",
    "max_gpu_memory": "gpu_memory<=",
}
"""Flags that are short for a constraint."""
OWNED: Final = {
    "model_name": "profile_models names the model",
    "url": "triton_http_endpoint or triton_grpc_endpoint names the server",
}
"""Flags of bench that are analyze's own, and what is written instead."""


def given_by(parser: argparse.ArgumentParser, flags: Sequence[str]) -> tuple[Mapping[str, Any], list[str]]:
    """What flags themselves say, without any default, and what this parser does not know."""
    nothing = {action.dest: None for action in parser._actions}
    found, rest = parser.parse_known_args(flags, argparse.Namespace(**nothing))
    return {name: value for name, value in vars(found).items() if value is not None}, rest


def merged(file: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Of both, by name.  Lists that name what they set, and bounds, are merged by that."""
    gone = {name for group in INSTEAD if not group.isdisjoint(typed) for name in group}
    gone |= {"server_flag"} if "url" in typed else set()
    bounds = {_about_bound(each) for each in typed.get("constraint", ())}
    bounds |= {BOUNDS[name] for name in typed if name in BOUNDS}
    gone |= {name for name, bound in BOUNDS.items() if bound in bounds}
    found = {**{name: value for name, value in file.items() if name not in gone}, **typed}
    for name, about in ABOUT.items():
        told = bounds if name == "constraint" else {about(each) for each in typed.get(name, ())}
        kept = [
            each
            for each in file.get(name, ())
            if name not in gone and told.isdisjoint((about(each), about(each).rpartition(":")[2]))  # of any model
        ]
        if kept:
            found[name] = [*kept, *typed.get(name, ())]
        elif name not in typed:
            found.pop(name, None)
    return found


def _about_name(text: str) -> str:
    return text.partition("=")[0]


def _about_bound(text: str) -> str:
    sign = "<=" if "<=" in text else ">="
    name, _, _ = text.partition(sign)
    model, colon, own = name.strip().rpartition(":")
    return f"{model}{colon}{OTHER_NAMES.get(own, own)}{sign}"


ABOUT: Final[Mapping[str, Callable[[str], str]]] = {
    "set": _about_name,
    "server_flag": _about_name,
    "constraint": _about_bound,
}
"""Flags that may be repeated for different things: what each is about."""


def bench_flags(units: Iterable[Unit], typed: Sequence[str]) -> list[str]:
    """A file's flags of bench that no typed one stands for, and the typed ones.  Raises ConfigError."""
    known, _ = given_by(bench_parser(), typed)
    kept: list[str] = []
    for unit in units:
        names = _names(unit)
        if known.keys().isdisjoint(names):
            kept += unit
    return [*kept, *typed]


def _names(unit: Unit) -> Iterable[str]:
    """Of the settings that a flag sets.  Raises ConfigError for one that bench does not have, or that is our own."""
    flag = unit[0].partition("=")[0]
    try:
        found, rest = given_by(bench_parser(), unit)
    except SystemExit:
        raise ConfigError(f"perf_analyzer_flags: {flag} measures nothing; leave it out") from None
    for name in found:
        if name in OWNED:
            raise ConfigError(f"perf_analyzer_flags: {flag} has no place there: {OWNED[name]}")
    if rest:
        raise ConfigError(f"perf_analyzer_flags: {' '.join(rest):.200} is not known to tisfast bench")
    return found
