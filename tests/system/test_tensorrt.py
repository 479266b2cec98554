"""Plans of TensorRT, run by a stand-in for its package on a stand-in for the driver: docs/tensorrt.md."""

from __future__ import annotations

import signal

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.system.array_calls import config_of, executions, infer, infer_each
from tests.system.backend_growth import Asker, asked, held, no_more_than
from tests.system.helpers import until
from tests.system.tensorrt_plans import doubler, plan, tensor, two_profiles

TYPES = {
    "FLOAT": ("FP32", np.float32), "HALF": ("FP16", np.float16), "INT8": ("INT8", np.int8),
    "UINT8": ("UINT8", np.uint8), "INT32": ("INT32", np.int32), "INT64": ("INT64", np.int64),
    "BOOL": ("BOOL", np.bool_),
}  # fmt: skip
ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)


def columns_of(config, role):
    return [(each["name"], each["data_type"], each["dims"]) for each in config[role]]


def test_every_type_that_clients_can_send(serve, write_plan, connect):
    for dtype in TYPES:
        write_plan(dtype.lower(), doubler(dtype=dtype, make="X"))
    client = connect(server := serve().ready(), grpcclient)
    for dtype, (kserve, array_type) in TYPES.items():
        config = config_of(server, dtype.lower())
        assert columns_of(config, "input") == [("X", f"TYPE_{kserve}", [4])], dtype
        values = np.array([[0, 1, 1, 0], [1, 2, 3, 100]]).astype(array_type)
        assert np.array_equal(infer(client, dtype.lower(), X=values)["Y"], values), dtype


def test_bf16(serve, write_plan, connect):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="it comes with onnx")
    write_plan("m", doubler(dtype="BF16", make="X"))
    client = connect(server := serve().ready(), grpcclient)
    assert columns_of(config_of(server, "m"), "output") == [("Y", "TYPE_BF16", [4])]
    values = np.array([[1.5, -2, 0, np.inf]], ml_dtypes.bfloat16)
    assert np.array_equal(infer(client, "m", X=values)["Y"], values)


def test_a_configuration_is_completed_from_the_plan(serve, write_plan, connect):
    fixed = plan([tensor("X", [2, 4])], [tensor("Y", [4, 2], make="X.T")])
    write_plan("whole", doubler(most=16))
    write_plan("platform", doubler(), "", 'platform: "tensorrt_plan"')
    write_plan("fixed", fixed)
    write_plan("said", doubler(), "max_batch_size: 3 dynamic_batching { max_queue_delay_microseconds: 5 }")
    write_plan("parts", doubler(), 'input { name: "X" } output { name: "Y" dims: [ 4 ] }')
    whole_dims = 'input { name: "X" data_type: TYPE_FP32 dims: [ -1, 4 ] }'
    write_plan("unbatched", doubler(), whole_dims)
    server = serve().ready()
    config = config_of(server, "whole")
    assert (config["platform"], config["max_batch_size"]) == ("tensorrt_plan", 16)
    assert config["default_model_filename"] == "model.plan" and "dynamic_batching" in config
    assert columns_of(config, "input") == [("X", "TYPE_FP32", [4])]
    assert columns_of(config, "output") == [("Y", "TYPE_FP32", [4])]
    assert config["instance_group"][0]["kind"] == "KIND_GPU"
    assert config_of(server, "platform")["backend"] == "tensorrt"
    config = config_of(server, "fixed")
    assert config["max_batch_size"] == 0 and columns_of(config, "output") == [("Y", "TYPE_FP32", [4, 2])]
    config = config_of(server, "said")
    assert config["max_batch_size"] == 3 and config["dynamic_batching"]["max_queue_delay_microseconds"] == 5
    config = config_of(server, "parts")
    assert config["max_batch_size"] == 8 and columns_of(config, "input") == [("X", "TYPE_FP32", [4])]
    config = config_of(server, "unbatched")
    assert config["max_batch_size"] == 0 and columns_of(config, "output") == [("Y", "TYPE_FP32", [-1, 4])]
    client = connect(server, grpcclient)
    assert np.array_equal(infer(client, "fixed", X=ROWS)["Y"], ROWS.T)
    assert np.array_equal(infer(client, "unbatched", X=ROWS)["Y"], ROWS * 2)


def groups(*profiles):
    said = ", ".join(f'"{each}"' for each in profiles)
    return f"instance_group {{ kind: KIND_GPU profile: [ {said} ] }}"


def test_batches_run_in_the_profile_that_is_made_for_their_shapes(serve, write_plan, connect):
    write_plan("first", two_profiles())
    write_plan("second", two_profiles(), groups(1))
    write_plan("both", two_profiles(), groups(1, 0))
    client = connect(server := serve().ready(), grpcclient)
    assert [config_of(server, name)["max_batch_size"] for name in ("first", "second", "both")] == [2, 16, 16]
    for shape in ((1, 1), (2, 8), (1, 9), (16, 64), (3, 4)):
        values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        assert np.array_equal(infer(client, "both", X=values)["Y"], values * 2), shape
    refused = [("first", (1, 9), 1, 1, 8, 9), ("second", (2, 3), 1, 4, 64, 3), ("second", (2, 65), 1, 4, 64, 65)]
    for name, shape, dimension, least, most, given in refused:
        with pytest.raises(InferenceServerException) as caught:
            infer(client, name, X=np.zeros(shape, np.float32))
        assert f"request specifies invalid shape for input 'X' for {name}_0" in str(caught.value)
        assert (
            f"model expected the shape of dimension {dimension} to be between {least} and {most} but received {given}"
            in str(caught.value)
        )
    assert np.array_equal(infer(client, "first", X=np.ones((1, 8), np.float32))["Y"], np.full((1, 8), 2, np.float32))


def test_each_instance_group_has_its_own_profiles(serve, write_plan, connect):
    config = "max_batch_size: 2 instance_group [ { kind: KIND_GPU profile: '0' }, { kind: KIND_GPU profile: '1' } ]"
    write_plan("m", two_profiles(), config)
    server = serve().ready()
    assert {f"m_{at}_0" for at in (0, 1)} <= {record.get("instance") for record in server.log}
    assert config_of(server, "m")["instance_group"][1]["profile"] == ["1"]
    values = np.ones((2, 8), np.float32)
    assert np.array_equal(infer(connect(server, grpcclient), "m", X=values)["Y"], values * 2)


def test_requests_are_executed_together(serve, write_plan, connect):
    config = "max_batch_size: 8 dynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 100000 }"
    write_plan("m", doubler(make="X + X.shape[0] * 0"), config)
    client = connect(server := serve().ready(), grpcclient)
    requests = [{"X": np.full((1, 4), n, np.float32)} for n in range(64)]
    for request, answer in zip(requests, infer_each(client, "m", requests), strict=True):
        assert np.array_equal(answer["Y"], request["X"])
    count, batches = executions(server, "m")
    assert count == 64 and batches < 64


def test_large_tensors_and_those_without_elements(serve, write_plan, connect):
    ranges = ([1, 0], [1, 1024], [4, 1 << 18])
    outputs = [tensor("Y", [-1, -1], make="X + 1"), tensor("N", [-1, 1], make="X.sum(1, keepdims=True)")]
    write_plan("m", plan([tensor("X", [-1, -1], ranges)], outputs))
    client = connect(serve().ready(), grpcclient)
    for shape in ((2, 1 << 18), (1, 3), (4, 1 << 17), (2, 1), (3, 0)):
        values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7
        found = infer(client, "m", X=values)
        assert np.array_equal(found["Y"], values + 1) and np.allclose(found["N"], values.sum(1, keepdims=True))


def test_an_output_may_lie_where_its_input_lies(serve, write_plan, connect):
    rows = tensor("X", [-1, 4], ([1, 4], [4, 4], [8, 4]))
    write_plan("m", plan([rows], [tensor("Y", [-1, 4], make="X * 3", alias="X")]))
    client = connect(serve().ready(), grpcclient)
    for _ in range(2):
        assert np.array_equal(infer(client, "m", X=ROWS)["Y"], ROWS * 3)


GRAPHS = " optimization { cuda { graphs: true %s } }"


def test_cuda_graphs_are_captured_at_load_and_run(serve, write_plan, connect):
    # Whatever runs says how many rows it was made for: those that are captured, and those that are not.
    write_plan("sizes", doubler(), "max_batch_size: 8" + GRAPHS % "")
    write_plan("batching", doubler(), "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 }" + GRAPHS % "")
    spec = 'graph_spec { batch_size: 2 input { key: "X" value { dim: [ 7 ] } } }'
    write_plan("spec", two_profiles(), GRAPHS % spec + groups(0, 1))
    write_plan("none", doubler(no_capture=True), GRAPHS % "")
    server = serve("--log-verbose=1").ready()
    client = connect(server, grpcclient)
    captured = [record["message"] for record in server.log if record["message"].startswith("CUDA graph for")]
    for rows in (1, 4, 8):
        assert f"CUDA graph for X [{rows}, 4]" in captured
    assert "CUDA graph for X [2, 7]" in captured
    assert any("no CUDA graph for X [1, 4] of none_0" in record["message"] for record in server.log)
    for name in ("sizes", "batching", "none"):
        for rows in (1, 5, 2, 8, 2, 3):
            values = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4) + rows
            assert np.array_equal(infer(client, name, X=values)["Y"], values * 2), (name, rows)
    for shape in ((2, 7), (2, 6), (16, 64), (2, 7)):
        values = np.ones(shape, np.float32)
        assert np.array_equal(infer(client, "spec", X=values)["Y"], values * 2), shape


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
def test_sequences_with_controls_and_state(serve, write_plan, connect, strategy):
    inputs = [tensor(name, [-1, 1], ([1, 1], [2, 1], [4, 1])) for name in ("INPUT", "START", "OLD")]
    outputs = [tensor(name, [-1, 1], make="INPUT + OLD * (1 - START)") for name in ("OUTPUT", "NEW")]
    control = 'control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }'
    state = 'state { input_name: "OLD" output_name: "NEW" data_type: TYPE_FP32 dims: 1 }'
    config = f"max_batch_size: 4 sequence_batching {{ {strategy} {control} {state} }}"
    write_plan("sums", plan(inputs, outputs), config + GRAPHS % "")
    client = connect(server := serve("--log-verbose=1").ready(), grpcclient)
    captured = [record["message"] for record in server.log if record["message"].startswith("CUDA graph for")]
    assert [f"INPUT [{rows}, 1]" in message for rows, message in enumerate(captured, 1)] == [True] * 4
    assert columns_of(config_of(server, "sums"), "input") == [("INPUT", "TYPE_FP32", [1])]

    def send(sequence, value, **flags):
        sent = grpcclient.InferInput("INPUT", [1, 1], "FP32")
        sent.set_data_from_numpy(np.full((1, 1), value, np.float32))
        return client.infer("sums", [sent], sequence_id=sequence, **flags).as_numpy("OUTPUT").item()

    assert send(7, 1, sequence_start=True) == 1 and send(8, 10, sequence_start=True) == 10
    assert send(7, 2) == 3 and send(8, 20, sequence_end=True) == 30
    assert send(7, 3, sequence_end=True) == 6


def test_an_execution_that_tensorrt_refuses_is_told_and_the_next_one_runs(serve, write_plan, connect):
    write_plan("m", doubler(refuses_rows=3))
    client = connect(server := serve().ready(), grpcclient)
    before = server.worker("m_0")
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="the execution cannot be started: .*failed at run time"):
            infer(client, "m", X=np.ones((3, 4), np.float32))
        assert np.array_equal(infer(client, "m", X=ROWS)["Y"], ROWS * 2)
    assert server.worker("m_0") == before


def test_a_worker_whose_gpu_context_breaks_is_replaced(serve, write_plan, connect):
    write_plan("m", doubler(fails_below=-5))
    client = connect(server := serve().ready(), grpcclient)
    before = server.worker("m_0")
    reason = "cuStreamSynchronize failed on the GPU: CUDA_ERROR_LAUNCH_FAILED"
    with pytest.raises(InferenceServerException, match=reason):
        infer(client, "m", X=ROWS - 9)
    until(lambda: server.worker("m_0") != before and server.model_ready("m"), "the model is ready again")
    assert np.array_equal(infer(client, "m", X=ROWS)["Y"], ROWS * 2)
    server.says(f"ends, as its process can use the GPU no more: {reason}")
    assert server.text().count(reason) == 1
    assert "Traceback" not in server.text()


def test_a_worker_that_is_killed_comes_back_and_a_changed_file_is_loaded(serve, write_plan, connect):
    write_plan("m", doubler())
    client = connect(server := serve("--model-control-mode=explicit", "--load-model=m").ready(), grpcclient)
    before = server.worker("m_0")
    psutil.Process(before).send_signal(signal.SIGKILL)
    until(lambda: server.worker("m_0") != before and server.model_ready("m"), "the model is ready again")
    assert np.array_equal(infer(client, "m", X=ROWS)["Y"], ROWS * 2)
    write_plan("m", doubler(make="X * 5"))
    client.load_model("m")
    assert np.array_equal(infer(client, "m", X=ROWS)["Y"], ROWS * 5)


def test_100_loads_leave_nothing(serve, write_plan, connect):
    """While a client asks; what the server holds is looked at when it does not."""
    rows = tensor("X", [-1, 1], ([1, 1], [4, 1], [8, 1]))
    write_plan("m", plan([rows], [tensor("Y", [-1, 1], make="X + 0")]))
    server = serve("--model-control-mode=explicit", "--load-model=m").ready()
    client, processes = connect(server, grpcclient), len(server.family())
    before = None
    for first, last in ((1, 20), (21, 100)):
        asker = Asker(server, "m", "X", lambda found: found[0, 0] >= 1)
        with asked(asker):
            for n in range(first, last + 1):
                write_plan("m", plan([rows], [tensor("Y", [-1, 1], make=f"X + {n}")]))
                client.load_model("m")
                assert infer(client, "m", X=ROWS[:1, 1:2])["Y"].item() == n + 1
        if before is None:
            until(lambda: len(server.family()) == processes, f"{processes} processes")
            before = held(server)
    no_more_than(before, server)


def test_a_file_is_served_as_it_lies(serve_files, gpu_stand_in, tmp_path):
    (tmp_path / "doubler.plan").write_bytes(doubler())
    server = serve_files(tmp_path / "doubler.plan", "--exit-on-error=false")
    assert "package 'tensorrt'" in server.said(lambda r: "tensorrt" in r.get("message", ""), "a reason")["message"]
