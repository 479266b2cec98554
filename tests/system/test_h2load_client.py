"""h2load, a client of nghttp2's own, against the gRPC port of a real server: many streams over few connections."""

from __future__ import annotations

import shutil

import pytest

from perf.h2load import h2load
from perf.oracle.launch import ROOT


@pytest.mark.skipif(not shutil.which("h2load"), reason="needs h2load (Debian's nghttp2-client)")
def test_every_call_of_32_streams_is_answered_with_data(serve):
    server = serve(repository=ROOT / "examples/models")
    port = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]
    found = h2load(f"localhost:{port}", "add_sub", 32, 0.5)  # raises when one was not
    assert found.rate > 100
    assert server.end() == 0
