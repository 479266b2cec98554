"""perf.macro.floor's C program: real clients take it for a server of identity_fp32."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.http as httpclient

from perf.macro.floor import build, floor
from tests.system.helpers import ROOT

FLOATS = 150_528  # more than a socket takes at once


@pytest.mark.parametrize("spins", [False, True])
def test_it_answers_with_the_request_and_asks_the_real_server_for_the_rest(serve, tmp_path, spins):
    server = serve(repository=ROOT / "examples/models").ready()
    with (
        floor(build(tmp_path), server.port, spins=spins) as address,
        httpclient.InferenceServerClient(address.http) as client,
    ):
        values = np.arange(FLOATS, dtype=np.float32)
        tensor = httpclient.InferInput("INPUT0", [FLOATS], "FP32").set_data_from_numpy(values)
        for _ in range(3):
            assert np.array_equal(client.infer("identity_fp32", [tensor]).as_numpy("OUTPUT0"), values)
        assert client.get_model_metadata("identity_fp32")["inputs"][0]["name"] == "INPUT0"
        before, after = (client.get_inference_statistics("identity_fp32")["model_stats"][0] for _ in range(2))
        assert after["inference_count"] == before["inference_count"] + 1
