"""What a table of results must say about where it was measured."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from perf.oracle.launch import ROOT


def processor() -> str:
    """The processor's name, or its architecture when the kernel does not tell."""
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def slug() -> str:
    """A file name for this machine: no date, no host name."""
    return re.sub(r"[^a-z0-9]+", "-", f"{platform.machine()} {processor()} {cores()} cores".lower()).strip("-")


def busy_share(seconds: float) -> float:
    """Share of all cores' time spent working in the next seconds, 0 to 1: before a run, what others take."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    return (after[0] - before[0]) / max(after[1] - before[1], 1)


class Losses(NamedTuple):
    """What a thread that only spins loses of its core: to the host of a virtual machine, and to the kernel.

    Moments longer than 50 us, per core and second; the share of time in them; the longest, in us.
    """

    per_second: float
    share: float
    longest_us: float


_SPIN: Final = """
import os, sys, time
cpu, end = int(sys.argv[1]), time.perf_counter_ns() + int(float(sys.argv[2]) * 1e9)
os.sched_setaffinity(0, {cpu})
now, before, count, total, longest = time.perf_counter_ns, time.perf_counter_ns(), 0, 0, 0
while before < end:
    at = now()
    if at - before > 50_000:
        count, total, longest = count + 1, total + at - before, max(longest, at - before)
    before = at
print(count, total, longest)
"""


def losses(seconds: float) -> Losses:
    """Measured on all cores at a time, for so many seconds, with nothing else of ours running."""
    commands = [[sys.executable, "-c", _SPIN, str(cpu), str(seconds)] for cpu in sorted(os.sched_getaffinity(0))]
    spinners = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    found = [[int(word) for word in spinner.communicate()[0].split()] for spinner in spinners]
    spun = seconds * len(found)
    counts, totals, longest = zip(*found, strict=True)
    return Losses(sum(counts) / spun, sum(totals) / 1e9 / spun, max(longest) / 1e3)


def _ticks() -> tuple[int, int]:
    """Busy and all clock ticks since boot; waiting for disks counts as idle."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def commit() -> str:
    """The commit measured, with -dirty when the tree differs from it; "unknown" outside a git clone, or without git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
