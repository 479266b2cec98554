"""What is wrong with plans of TensorRT, their configurations and their environments, and how it is told."""

from __future__ import annotations

import numpy as np
import tritonclient.grpc as grpcclient

from tests.system.array_calls import UNREADY, infer, reason_of
from tests.system.tensorrt_plans import doubler, environment, parameters, plan, tensor, two_profiles

X, Y = (role + ' {{ name: "{}" data_type: TYPE_{} dims: [ {} ] }} ' for role in ("input", "output"))
GRAPHS = "optimization {{ cuda {{ graphs: {} graph_spec {{ {} }} }} }}"


def wrong_plans():
    """By name: (plan, words of the reason)."""
    rows, out = tensor("X", [-1, 4], ([1, 4], [2, 4], [8, 4])), tensor("Y", [-1, 4], make="X")
    whole = doubler()
    return {
        "noise": (b"\x00\x01" * 99, "model.plan' is none that TensorRT 10.7.0.23 can read"),
        "empty": (b"", "is none that TensorRT 10.7.0.23 can read, its beginning names no version"),
        "onnx": (b'\x08\x08{"learner": {}}' * 9, "is none that TensorRT 10.7.0.23 can read"),
        "cut": (whole[:-30], "was built with TensorRT 10.7.0.23, as is this one (10.7.0.23), and cannot be read: "),
        "older": (doubler(version=(8, 6, 1, 6)),
                  "was built with TensorRT 8.6.1.6, and this is TensorRT 10.7.0.23: build it again"),
        "newer": (doubler(version=(11, 4, 0, 1)), "was built with TensorRT 11.4.0.1, and this is TensorRT 10.7.0.23"),
        "lean": (doubler(host_code=True), "setEngineHostCodeAllowed"),
        "fp8": (doubler(dtype="FP8"), "has tensor 'X' of type FP8, which clients cannot send"),
        "shaped": (plan([{**rows, "is_shape": True}], [out]), "has shape tensor 'X'"),
        "format": (plan([{**rows, "format": "CHW2"}], [out]), "has tensor 'X' of a format that is not linear"),
        "values": (plan([rows], [{**out, "data_dependent": True}]), "the shape of output 'Y' depends on values"),
    }  # fmt: skip


def wrong_configurations():
    """By name: (configuration, words of the reason)."""
    both = "max_batch_size: 8 " + X.format("X", "FP32", 4) + Y.format("Y", "FP32", 4)
    return {
        "name": (both.replace('"X"', '"Z"'), "unexpected inference input 'Z', allowed inputs are: X"),
        "type": (both.replace("FP32", "INT32"), "configuration expects datatype TYPE_INT32 for input 'X'"),
        "text": (both.replace("FP32", "STRING"), "configuration expects datatype TYPE_STRING for input 'X'"),
        "dims": (both.replace("[ 4 ]", "[ 5 ]"), "the model expects 2 dimensions (shape [-1,4])"),
        "batch": ("max_batch_size: 9",
                  "configuration specified max-batch 9 but TensorRT engine only supports max-batch 8"),
        "mixed": (X.format("X", "FP32", "-1, 4") + Y.format("Y", "FP32", 4), "are contradicting each other"),
        "cpu": ("instance_group { kind: KIND_CPU }",
                "unable to load model 'cpu', TensorRT backend supports only GPU device"),
        "profile": ("instance_group { kind: KIND_GPU profile: '3' }",
                    "names profile '3': its plan has 1, from 0 to 0"),
        "strategy": (parameters(execution_context_allocation_strategy="SOME"),
                     "Invalid value for 'execution_context_allocation_strategy': 'SOME'"),
        "graph_size": (GRAPHS.format("true", "batch_size: 9"),
                       "graph spec expects 'batch_size' to be >= 1 and <= 8, got 9"),
        "graph_name": (GRAPHS.format("true", 'batch_size: 1 input { key: "Q" value { dim: 4 } }'), "names input 'Q'"),
        "graph_bound": (GRAPHS.format("true", "batch_size: 8 graph_lower_bound { batch_size: 2 }"),
                        "has graph_lower_bound, which is not served"),
        "graph_off": (GRAPHS.format("false", "batch_size: 8"),
                      "and not 'graphs: true', without which it has no effect"),
        "priority": ("optimization { priority: PRIORITY_MAX }", "'optimization.priority' is known, but not served yet"),
    }  # fmt: skip


def test_what_is_wrong_with_a_plan_or_its_configuration_is_told(serve, write_plan, connect):
    plans, configurations = wrong_plans(), wrong_configurations()
    for name, (content, _) in plans.items():
        write_plan(name, content)
    for name, (config, _) in configurations.items():
        write_plan(name, doubler(), config)
    write_plan("range", two_profiles(), "max_batch_size: 2 " + X.format("X", "FP32", 9) + Y.format("Y", "FP32", 9))
    write_plan("right", doubler())
    words = {name: said for name, (_, said) in (plans | configurations).items()}
    words["range"] = "model expected the shape of dimension 1 to be between 1 and 8 but received 9"
    client = connect(server := serve(*UNREADY).ready(), grpcclient)
    for name, wanted in words.items():
        reason = reason_of(server, name)
        assert wanted in reason and "Traceback" not in reason, f"{name}: {reason}"
    assert infer(client, "right", X=np.ones((1, 4), np.float32))["Y"].tolist() == [[2, 2, 2, 2]]


def test_settings_of_the_backend(serve, write_plan, connect):
    write_plan("lean", doubler(host_code=True))
    write_plan("static", doubler(), parameters(execution_context_allocation_strategy="ON_PROFILE_CHANGE"))
    flags = ("version-compatible=true", "execution-policy=BLOCKING", "plugins=/nowhere.so;", "coalesce-request-input=1")
    server = serve(*(f"--backend-config=tensorrt,{each}" for each in flags)).ready()
    client = connect(server, grpcclient)
    for name in ("lean", "static"):
        assert infer(client, name, X=np.ones((1, 4), np.float32))["Y"].tolist() == [[2, 2, 2, 2]]
    assert any("plugin '/nowhere.so' of TensorRT cannot be loaded" in record["message"] for record in server.log)


def test_settings_that_mean_nothing(serve, write_plan):
    write_plan("m", doubler())
    server = serve(*UNREADY, "--backend-config=tensorrt,execution-policy=SOME").ready()
    assert "execution-policy is 'SOME', and can be DEVICE_BLOCKING or BLOCKING" in reason_of(server, "m")


def test_more_memory_than_the_gpu_has(serve, write_plan):
    rows = tensor("X", [-1, 4], ([1, 4], [2, 4], [1 << 26, 4]))
    write_plan("m", plan([rows], [tensor("Y", [1], make="np.zeros(1)")]), "max_batch_size: 0")
    reason = reason_of(serve(*UNREADY).ready(), "m")
    assert "ran out of GPU memory (1.0 GiB were asked for)" in reason


def test_a_missing_package_is_told_with_the_command(serve, write_plan, tmp_path):
    bare = environment(tmp_path / "bare")
    path = write_plan("m", doubler())
    config = path.parents[1] / "config.pbtxt"
    config.write_text(config.read_text().replace(str(write_plan.environment), str(bare)))
    reason = reason_of(serve(*UNREADY).ready(), "m")
    assert "package 'tensorrt' is missing" in reason and "Traceback" not in reason
    assert f"{bare}/bin/python3 -m pip install tensorrt" in reason


def test_a_machine_without_a_gpu_says_so(serve, write_plan, monkeypatch, tmp_path):
    write_plan("m", doubler())
    write_plan("forced", doubler(), "instance_group { kind: KIND_GPU }")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    server = serve(*UNREADY).ready()
    assert "TensorRT backend supports only GPU device: its instances are KIND_CPU" in reason_of(server, "m")
    assert "has kind KIND_GPU but no GPUs are available" in reason_of(server, "forced")
