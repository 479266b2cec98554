"""`make serve` in a fresh clone: it sets itself up, serves, answers, and ends on SIGTERM with code 0.

    python -m tests.install.made

Needs the standard library only, and the tools that `make` finds or installs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tests.install.installed import SERVE_FLAGS, answers

ROOT: Final = Path(__file__).resolve().parents[2]
SET_UP_SECONDS_MAX: Final = 1200


def main() -> int:
    """Returns the exit code."""
    began = time.monotonic()
    command = ["make", "serve", f"FLAGS={' '.join(SERVE_FLAGS)}"]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    watch = threading.Timer(SET_UP_SECONDS_MAX, server.kill)
    watch.daemon = True
    watch.start()
    answers(server, lambda: _terminate_what_make_runs(server.pid))
    seconds = time.monotonic() - began
    print(f"make serve: served add_sub under CPython {sys.version.split()[0]}, {seconds:.0f} s with set-up", flush=True)
    return 0


def _terminate_what_make_runs(make: int) -> None:
    """make itself would end with the signal's code, whatever the server's is."""
    (child,) = Path(f"/proc/{make}/task/{make}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
