"""What the client itself costs, and whether it is the limit.  Layer 5 (bench)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tisfast.bench.histogram import Histogram
from tisfast.bench.results import ClientCost

BUSY_LIMIT: Final = 0.8
"""Share of the time that the load's thread worked, from which on it is the limit."""
WAITED_LIMIT: Final = 0.1
"""Share of the time that it was ready to work, and had no core."""
LATE_SHARE: Final = 0.01
"""Share of the requests that left more than 1 ms behind their time."""


class Clocks(NamedTuple):
    """Of the calling thread, ns."""

    wall_ns: int
    cpu_ns: int
    runqueue_ns: int


def clocks() -> Clocks:
    """Now."""
    return Clocks(time.monotonic_ns(), time.thread_time_ns(), _runqueue_ns())


def _runqueue_ns() -> int:
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0  # a kernel without these figures


class Counted(NamedTuple):
    """Of the load.  idle_ns: in epoll_wait; delayed: requests that left late."""

    idle_ns: int
    gil_ns: int
    send_ns: int
    receive_ns: int
    delayed: int
    lateness: Histogram


def cost(before: Clocks, after: Clocks, counted: Counted) -> ClientCost:
    """Of the time between two looks."""
    wall_ns = after.wall_ns - before.wall_ns
    busy_ns = max(wall_ns - counted.idle_ns, 0)
    runqueue_ns = after.runqueue_ns - before.runqueue_ns
    return ClientCost(
        cpu_ns=after.cpu_ns - before.cpu_ns,
        wall_ns=wall_ns,
        busy_ns=busy_ns,
        gil_ns=counted.gil_ns,
        runqueue_ns=runqueue_ns,
        lateness=counted.lateness,
        send_ns=counted.send_ns,
        receive_ns=counted.receive_ns,
        limited=limited(busy_ns / wall_ns, runqueue_ns / wall_ns, counted, counted.gil_ns / wall_ns) if wall_ns else "",
    )


def limited(busy: float, waited: float, counted: Counted, held: float = 0.0) -> str:
    """Why the client may be the limit, or "".  Shares of the time: busy, without a core, waiting for other threads."""
    if held > WAITED_LIMIT:
        return (
            f"the client's thread waited for {held:.0%} of the time until its other threads had read statistics and "
            "metrics, which is part of all latencies; raise --metrics-interval and -p"
        )
    if busy > BUSY_LIMIT and waited > WAITED_LIMIT:
        return (
            f"the client's thread was busy for {busy:.0%} of the time and had no core for {waited:.0%} of it: "
            "others use the same cores; run the client on another machine"
        )
    if busy > BUSY_LIMIT:
        return (
            f"the client's thread was busy for {busy:.0%} of the time: the server may do more than one client asks "
            "for; start a second one, and add what both say"
        )
    if waited > WAITED_LIMIT:
        return (
            f"the client was ready and had no core for {waited:.0%} of the time, which is part of all latencies; "
            "run it on another machine, or give it a core of its own"
        )
    late = counted.lateness
    if late.count and counted.delayed > LATE_SHARE * late.count:
        return (
            f"{counted.delayed / late.count:.0%} of the requests left more than 1 ms behind their time (the worst "
            f"{late.maximum / 1e6:.1f} ms): no connection was free, or the client was late; latencies count "
            "from the intended time, so they hold this, and service times do not"
        )
    return ""


def machine() -> Mapping[str, str]:
    """The client's."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    system = os.uname()
    return {
        "processor": model or system.machine,
        "cores": str(len(os.sched_getaffinity(0))),
        "system": f"{system.sysname} {system.release}",
    }
