"""`tisfast analyze` searches a model of the real Triton as one of tisfast, and gives it back what it had."""

from __future__ import annotations

from typing import Final

import pytest
import tritonclient.http as httpclient

from perf.oracle.server import Kind, Server
from tests.system.analyze_models import BATCHED, SHORT, TOGETHER, analyze

KINDS: Final[tuple[Kind, ...]] = ("triton", "tisfast")


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_server_is_searched_and_left_as_it_was(tmp_path, kind):
    model, out = tmp_path / "models/made", tmp_path / "out"
    (model / "1").mkdir(parents=True)
    (model / "1/model.py").write_text(TOGETHER)
    (model / "config.pbtxt").write_text(BATCHED)
    flags = ["--model-control-mode=explicit", "--load-model=made"]
    with Server(kind, [model.parent], flags) as server:
        url = f"localhost:{server.http}"
        with httpclient.InferenceServerClient(url) as client:
            before = client.get_model_config("made")
            search = ("--max-batch-sizes", "1,8", "--concurrency", "8")
            code, text, err = analyze("-m", "made", "-u", url, "-o", out, *search, *SHORT)
            assert (code, err) == (0, "")
            assert client.get_model_config("made") == before
    assert "   1  max_batch_size 8  concurrency 8" in text
    (model / "config.pbtxt").write_text((out / "best/1/config.pbtxt").read_text())
    with (
        Server(kind, [model.parent], flags) as server,
        httpclient.InferenceServerClient(f"localhost:{server.http}") as client,
    ):
        assert client.get_model_config("made")["max_batch_size"] == 8
