"""What a run of a load generator gives, medians and ratios of it, and how such a program is run."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Figures(NamedTuple):
    """What one run measured: requests a second, and latencies in microseconds (NaN where the client tells none)."""

    rate: float
    p50: float
    p99: float

    def facts(self) -> dict[str, float | None]:
        """For JSON, which has no NaN."""
        return {name: None if math.isnan(value) else value for name, value in self._asdict().items()}


class RunFailed(RuntimeError):
    """The load generator gave no figures, or some answers were bad; the text has its output."""


def middle(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over some runs."""
    return Figures(*(statistics.median(values) for values in zip(*runs, strict=True)))


def ratio(a: Figures, b: Figures) -> Figures:
    """B over A, figure by figure."""
    return Figures(*(y / max(x, 1e-9) for x, y in zip(a, b, strict=True)))


def run_client(command: Sequence[str], seconds_max: float, env: Mapping[str, str] | None = None) -> str:
    """What a program printed.  It runs in a session of its own, of which nothing is left, however this ends."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=env, text=True, start_new_session=True, **pipes) as client:
        try:
            output, _ = client.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired as e:
            raise RunFailed(f"{command[0]} did not end within {seconds_max} s") from e
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(client.pid, signal.SIGKILL)
    return str(output)
