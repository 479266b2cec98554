"""What serving costs beside a framework itself: tensors passed on, one network, weights of several instances.

    make bench-backends                          # all rows, and a forest beside MLServer (perf.macro.forests)
    python -m perf.macro.frameworks              # these; needs torch, onnx and onnxruntime; 6 minutes
    python -m perf.macro.frameworks --framework TorchScript --only network

| row | A | B |
|---|---|---|
| identity | tisfast's Python identity | the same by a framework, in the same server, over HTTP by perf_analyzer |
| network | the bare call, in this process | the same network, served, over HTTP by wrk with one connection |
| memory | the server with one instance of a model with 207 MB of weights, proportional | the same with four |
| batches | the bare session, with batches as large as B's are on the mean | an ONNX network, 16 connections |
| load | a bare session of a 5 MB ONNX model is made | the model is loaded, its environment is warm |
| triton | a small ONNX network in the real Triton's Python backend | the same, served; by perf_analyzer |

A and B alternate, medians are shown, and the ratio B / A with its bar.  The floor is the same by the least server that
can be (perf.macro.framework_floor; of a load: by a process that only makes the session): a bar that it misses, too,
counts as met.  Over gRPC there is none.  The bare call has as many threads as an
instance, and the machine to itself; the served one shares it with the server and the client.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perf import machine
from perf.compare import Effort, complaining
from perf.macro.framework_models import FRAMEWORKS, Framework
from perf.macro.framework_rows import HEAD, Row, identities, memory, network
from perf.macro.onnx_rows import beside_triton, joined, load

LOOK_SECONDS: Final = 3.0


def rows(chosen: dict[str, Framework], effort: Effort, only: str) -> Iterator[Row]:
    """All rows whose kind is wanted, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if re.search(only, "identity"):
            yield from identities(chosen, effort, folder)
        for each, framework in chosen.items():
            if re.search(only, "network"):
                yield from network(each, framework, effort, folder)
            if re.search(only, "memory"):
                yield memory(each, framework, folder)
        if "ONNX" in chosen:
            kinds = {"batches": joined, "load": load, "triton": beside_triton}
            for kind, measure in kinds.items():
                if re.search(only, kind):
                    yield from measure(effort, folder)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append", help="default: all")
    parser.add_argument("--only", default="", metavar="REGEX", help="kinds of rows, of the table above")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each run, or of a window of perf_analyzer")
    options = parser.parse_args()
    chosen = {name: FRAMEWORKS[name] for name in options.framework or FRAMEWORKS}
    busy = machine.busy_share(LOOK_SECONDS)
    print(f"Other processes took {busy:.0%} of the machine before the run.\n\n{HEAD}", flush=True)
    for row in rows(chosen, Effort(options.rounds, options.seconds), options.only):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(complaining(main))
