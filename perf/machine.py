"""What a table of results must say about where it was measured."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

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


def commit() -> str:
    """The commit measured, with -dirty when the tree differs from it; "unknown" outside a git clone."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
