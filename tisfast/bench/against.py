"""What --vs asks for: a second server, and how both are compared.  Layer 5 (bench)."""

from __future__ import annotations

import argparse
import math
from typing import Final, NamedTuple

from tisfast.bench.asked import Asked
from tisfast.bench.compare import PAIRS_MAX, ROUNDS_MIN
from tisfast.errors import ConfigError

GRPC_SCHEMES: Final = ("grpc://", "grpcs://")
PERCENTS: Final = {"--margin": 5.0, "--fail-above": 5.0}
"""Flags, and their defaults."""


class Against(NamedTuple):
    """protocol: of the second server; pairs: of windows at a level; margin, fail_above: percent."""

    protocol: str
    pairs: int
    margin: float
    fail_above: float


def check_alone(typed: argparse.Namespace) -> None:
    """Without --vs.  Raises ConfigError for flags that belong to it."""
    for flag in PERCENTS:
        if _value(typed, flag) is not None:
            raise ConfigError(
                f"{flag} belongs to --vs URL, which is not given; `tisfast bench compare` has it, too, for two files"
            )


def read_against(typed: argparse.Namespace, asked: Asked) -> Against:
    """The second server has the first one's protocol where its URL does not say.  Raises ConfigError."""
    protocol = str(typed.protocol)
    if "://" in typed.vs:
        protocol = "grpc" if typed.vs.startswith(GRPC_SCHEMES) else "http"
    refused = {
        "--binary-search": typed.binary_search,
        "--stop confidence": typed.stop == "confidence",
        "--profile-export-file": bool(typed.profile_export_file),
        "--metrics-url": bool(typed.metrics_url),
        "a range without an end": asked.levels[1] == 0,
    }
    name = next((name for name, used in refused.items() if used), "")
    if name:
        raise ConfigError(f"{name} does not go with --vs, which measures two servers by turns: leave one of them out")
    if not ROUNDS_MIN <= asked.settings.trials <= PAIRS_MAX:
        raise ConfigError(
            f"-r {asked.settings.trials}: with --vs it is the number of pairs of windows, {ROUNDS_MIN} to {PAIRS_MAX}"
        )
    return Against(protocol, asked.settings.trials, *(_percent(typed, flag) for flag in PERCENTS))


def _percent(typed: argparse.Namespace, flag: str) -> float:
    value = _value(typed, flag)
    if value is None:
        return PERCENTS[flag]
    if not 0 <= value < math.inf:
        raise ConfigError(f"{flag} is {value:g}: write a number of percent, 0 or more")
    return value


def _value(typed: argparse.Namespace, flag: str) -> float | None:
    found: float | None = getattr(typed, flag.lstrip("-").replace("-", "_"))
    return found
