"""Batches as clients meet them: arrays, ragged inputs, priorities and timeouts, by a real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from tests.system.helpers import until

EXAMPLES = Path(__file__).parents[2] / "examples/batching"
GATED = """
import os
import time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        print("begins", *[request.request_id() for request in requests])
        for request in requests:
            while request.request_id() == "run" and not os.path.exists(GATE):
                time.sleep(0.005)
            answers.append(pb_utils.InferenceResponse([]))
        return answers
"""
GATED_CONFIG = """
backend: "python" max_batch_size: 4
input [ { name: "A" data_type: TYPE_UINT32 dims: [ 1 ] } ] output [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
dynamic_batching {
  priority_levels: 3 default_priority_level: 2
  priority_queue_policy { key: 3 value { default_timeout_microseconds: 50000 } }
}
"""


@pytest.fixture
def examples(serve):
    return serve(repository=EXAMPLES).ready()


def tensor(client, name, array, datatype):
    made = client.InferInput(name, array.shape, datatype)
    made.set_data_from_numpy(array)
    return made


def test_many_clients_get_their_own_rows(examples):
    rng = np.random.default_rng(1)
    rows = [rng.random((1 + n % 3 // 2, 4096), dtype=np.float32) for n in range(200)]

    def ask(row):
        with http_client.InferenceServerClient(f"127.0.0.1:{examples.port}") as client:
            return [
                client.infer("row_sums", [tensor(http_client, "ROW", row, "FP32")]).as_numpy("SUM") for _ in range(3)
            ]

    with ThreadPoolExecutor(16) as pool:
        for row, sums in zip(rows, pool.map(ask, rows), strict=True):
            for each in sums:
                np.testing.assert_allclose(each, row.sum(axis=1, keepdims=True), rtol=1e-4)
    status, stats = examples.ask("GET", "/v2/models/row_sums/stats")
    assert status == 200
    assert any(batch["batch_size"] > 2 for batch in stats["model_stats"][0]["batch_stats"])


def test_texts_of_different_lengths_share_a_batch_within_the_budget(examples):
    texts = [np.arange(n, n + 1 + n % 7, dtype=np.int32).reshape(1, -1) for n in range(40)]
    grpc_port = examples.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]

    def ask(text):
        with grpc_client.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
            answer = client.infer("token_sums", [tensor(grpc_client, "TOKENS", text, "INT32")])
            return answer.as_numpy("SUM"), answer.as_numpy("DOUBLED")

    with ThreadPoolExecutor(20) as pool:
        for text, (total, doubled) in zip(texts, pool.map(ask, texts), strict=True):
            assert total.tolist() == [[text.sum()]]
            assert doubled.tolist() == (text * 2).tolist()


def infer(server, id, **parameters):
    inputs = [{"name": "A", "datatype": "UINT32", "shape": [1, 1], "data": [1]}]
    return server.ask("POST", "/v2/models/gated/infer", {"id": id, "inputs": inputs, "parameters": parameters})


def test_priorities_and_the_timer_of_a_level(write_model, serve, tmp_path):
    gate = tmp_path / "gate"
    write_model("gated", GATED.replace("GATE", repr(str(gate))), GATED_CONFIG)
    server = serve().ready()
    with ThreadPoolExecutor(8) as pool:
        try:
            first = pool.submit(infer, server, "run")
            server.says("begins run")
            status, body = infer(server, "late", priority=3)
            assert (status, body["error"]) == (503, "Request timeout expired")
            assert not first.done()  # while the execution goes on
            others = []
            for id, priority in (("b", 2), ("a", 1), ("c", 9), ("d", 2)):  # they arrive in this order
                others.append(pool.submit(infer, server, id, priority=priority))
                until(lambda: server.pending("gated") == len(others), f"{id} waits")
        finally:
            gate.touch()
        assert [each.result()[0] for each in (first, *others)] == [200] * 5
    server.says("begins a b c d")
