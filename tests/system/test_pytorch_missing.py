"""A PyTorch model in an environment without PyTorch: docs/pytorch.md."""

from __future__ import annotations

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is in this environment")


def test_it_is_a_sentence_with_the_command(serve, tmp_path):
    (tmp_path / "models/net/1").mkdir(parents=True)
    (tmp_path / "models/net/1/model.pt").write_bytes(b"PK")
    server = serve("--exit-on-error=false").ready()
    told = server.ask("POST", "/v2/repository/index")[1][0]["reason"]
    assert "there is no torch, which runs this model" in told and "pip install 'tisfast[torch]'" in told
    assert "Traceback" not in server.text()
