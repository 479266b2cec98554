"""Plans of TensorRT, run by the stand-in: requests of several lengths, outputs that are asked for, a file alone."""

from __future__ import annotations

import numpy as np
import tritonclient.grpc as grpcclient

from tests.system.array_calls import infer, infer_each
from tests.system.helpers import until
from tests.system.tensorrt_plans import doubler, parameters, plan, tensor

ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)
GRAPHS = " optimization { cuda { graphs: true } }"
RAGGED = """
max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 20000 }
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ENDS" data_type: TYPE_FP32 source_input: "X" }
output [ { name: "SUM" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "TWICE" data_type: TYPE_FP32 dims: [ -1 ] } ]
batch_output { target_name: "TWICE" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" }
"""


def test_requests_of_different_lengths_are_joined(serve, write_plan, connect):
    inputs = [tensor("X", [-1], ([1], [8], [64])), tensor("ENDS", [-1], ([1], [2], [8]))]
    sums = "np.add.reduceat(X, np.r_[0, ENDS[:-1]].astype(int) % len(X)).reshape(-1, 1)"
    write_plan("m", plan(inputs, [tensor("SUM", [-1, 1], make=sums), tensor("TWICE", [-1], make="X * 2")]), RAGGED)
    client = connect(serve().ready(), grpcclient)
    requests = [{"X": np.arange(1, 2 + n % 5, dtype=np.float32)[None]} for n in range(24)]
    for request, answer in zip(requests, infer_each(client, "m", requests), strict=True):
        assert answer["SUM"].tolist() == [[request["X"].sum()]]
        assert answer["TWICE"].tolist() == (request["X"] * 2).tolist()


def test_outputs_are_answered_as_far_as_they_are_asked_for(serve, write_plan, connect):
    rows = tensor("X", [-1, 4], ([1, 4], [4, 4], [8, 4]))
    write_plan("m", plan([rows], [tensor("Y", [-1, 4], make="X * 3"), tensor("Z", [-1, 4], make="X * 4")]), GRAPHS)
    write_plan("one", plan([rows], [tensor("Y", [-1, 4], make="X * 3"), tensor("Z", [-1, 4], make="X * 4")]),
               'output { name: "Z" }')  # fmt: skip
    client = connect(serve().ready(), grpcclient)
    for values in (ROWS, np.ones((5, 4), np.float32)):  # with a CUDA graph, and without
        assert {name: found.tolist() for name, found in infer(client, "m", ["Z"], X=values).items()} == {
            "Z": (values * 4).tolist()
        }
        assert set(infer(client, "m", X=values)) == {"Y", "Z"}
    assert list(infer(client, "one", X=ROWS)) == ["Z"]


def test_a_plan_is_served_as_it_lies_and_again_when_it_changes(serve_files, write_plan, connect, tmp_path):
    (tmp_path / "doubler.plan").write_bytes(doubler())
    (tmp_path / "doubler.pbtxt").write_text(parameters(EXECUTION_ENV_PATH=str(write_plan.environment)))
    server = serve_files(tmp_path / "doubler.plan").ready()
    assert np.array_equal(infer(connect(server, grpcclient), "doubler", X=ROWS)["Y"], ROWS * 2)
    (tmp_path / "doubler.plan").write_bytes(doubler(make="X * 7"))
    until(lambda: infer(connect(server, grpcclient), "doubler", X=ROWS)["Y"][0, 1] == 7, "the new file is served")
