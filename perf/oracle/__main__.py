"""The real programs, in the foreground.

python -m perf.oracle install | tritonserver REPOSITORY [flags] | perf_analyzer [flags]
"""

from __future__ import annotations

import os
import sys

from perf.oracle import launch
from perf.oracle.install import OracleMissing, install


def main(arguments: list[str]) -> int:
    """Replace this process by the program asked for."""
    try:
        match arguments:
            case ["install"]:
                print(f"the real Triton is ready in {install()}")
                return 0
            case ["tritonserver", repository, *flags]:
                what = launch.triton([repository], flags)
            case ["perf_analyzer", *flags]:
                what = launch.perf_analyzer(flags)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except OracleMissing as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    os.execve(what.command[0], what.command, what.env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
