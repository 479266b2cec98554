"""What a run of a load generator gives, medians and ratios of it, and how such a program is run."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
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


class ServerDied(RunFailed):
    """A server ended under the load."""


def middle(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over some runs."""
    return Figures(*(statistics.median(values) for values in zip(*runs, strict=True)))


def ratio(a: Figures, b: Figures) -> Figures:
    """B over A, figure by figure."""
    return Figures(*(y / max(x, 1e-9) for x, y in zip(a, b, strict=True)))


def run_client(
    command: Sequence[str], seconds_max: float, env: Mapping[str, str] | None = None, servers: Sequence[int] = ()
) -> str:
    """What a program printed.  It runs in a session of its own, of which nothing is left, however this ends.

    servers: processes that it needs: when one ends the client is ended too (perf_analyzer would wait for ever).
    """
    with tempfile.TemporaryFile() as output:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, env=env, start_new_session=True, **pipes) as client:
            try:
                ended = first_to_end([client.pid, *servers], seconds_max)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(client.pid, signal.SIGKILL)
        if ended is None:
            raise RunFailed(f"{command[0]} did not end within {seconds_max} s")
        if ended != client.pid:
            raise ServerDied(f"the server (process {ended}) ended while {Path(command[0]).name} was running")
        output.seek(0)
        return output.read().decode(errors="replace")


def first_to_end(pids: Sequence[int], seconds_max: float) -> int | None:
    """The first of these processes (of the caller's, or of others) that is seen to have ended; None after the bound."""
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        found = {}
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                return pid
            stack.callback(os.close, descriptor)
            found[descriptor] = pid
            poll.register(descriptor, select.POLLIN)
        ended = {found[descriptor] for descriptor, _ in poll.poll(seconds_max * 1000)}
    return next((pid for pid in pids if pid in ended), None)
