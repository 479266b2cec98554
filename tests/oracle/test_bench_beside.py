"""`tisfast bench` asks the real Triton and tisfast alike: sequences, shared memory, compression."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from perf.oracle.server import Kind, Server
from tests.system.bench_command import COUNTER, SEQUENCES, bench, figure

KINDS: Final[tuple[Kind, ...]] = ("triton", "tisfast")
COUNT: Final = 60


def asked(kind: Kind, folder: Path) -> str:
    """What the model was told in all ways, a line for each request."""
    model = folder / kind / "counter"
    (model / "1").mkdir(parents=True)
    (model / "1/model.py").write_text(COUNTER)
    (model / "config.pbtxt").write_text(SEQUENCES)
    flags = ["--allow-client-shm=true"] if kind == "tisfast" else []
    with Server(kind, [model.parent], flags) as server:
        grpc = ["-i", "grpc", "-u", f"localhost:{server.grpc}"]
        for way in (
            ["-u", f"localhost:{server.http}"],
            grpc,
            [*grpc, "--streaming"],
            [*grpc, "--grpc-compression-algorithm", "gzip"],
            ["-u", f"localhost:{server.http}", "--shared-memory", "system"],
            [*grpc, "--shared-memory", "system"],
        ):
            code, out, err = bench("-m", "counter", *way, "--request-count", COUNT, "--sequence-length", "6")
            assert (code, err) == (0, "")
            assert figure(out, "Request count") == COUNT
    return next(model.rglob("seen")).read_text()


@pytest.mark.alone
def test_both_servers_see_the_same_sequences(tmp_path):
    triton, tisfast = (asked(kind, tmp_path) for kind in KINDS)
    assert triton.count("\n") > 6 * COUNT
    assert tisfast == triton
