"""Files of PyTorch that are damaged, silent, large, or sent by a client: docs/pytorch.md (make test-torch)."""

from __future__ import annotations

import os
import signal
import zipfile

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

pytest.importorskip("torch", reason="torch is in an environment of its own: make test-torch")

import torch  # noqa: E402 - it is there

from tests.system import torch_models as made  # noqa: E402
from tests.system.helpers import until  # noqa: E402

X = np.random.default_rng(5).standard_normal((3, 64), np.float32)
NETWORK = made.config([made.tensor("x", dims="64")], [made.tensor("y", dims="10")])
LARGE_BYTES = 24 << 20


def config_of(server, name):
    config = server.ask("GET", f"/v2/models/{name}/config")[1]
    sides = [[(each["name"], each["data_type"], each["dims"]) for each in config[role]] for role in ("input", "output")]
    return config["max_batch_size"], *sides


def test_files_that_hold_no_program_are_told_in_a_sentence(serve, tmp_path):
    models = tmp_path / "models"
    names = ("noise", "cut", "weights", "pickled", "zip", "broken", "empty")
    for name in names:
        made.save(made.Network(), models / name, NETWORK)
    whole = (models / "cut/1/model.pt").read_bytes()
    (models / "noise/1/model.pt").write_bytes(b"\x7fELF" + bytes(1000))
    with zipfile.ZipFile(models / "cut/1/model.pt") as old, zipfile.ZipFile(models / "broken/1/model.pt", "w") as new:
        for name in old.namelist():
            new.writestr(name, b"def (" if name.endswith(".py") else old.read(name))
    (models / "cut/1/model.pt").write_bytes(whole[: len(whole) // 2])
    (models / "empty/1/model.pt").write_bytes(b"")
    torch.save(made.Network().state_dict(), models / "weights/1/model.pt")
    torch.save(made.Network().state_dict(), models / "pickled/1/model.pt", _use_new_zipfile_serialization=False)
    np.savez(models / "zip/1/other.npz", a=X)
    os.replace(models / "zip/1/other.npz", models / "zip/1/model.pt")
    server = serve("--exit-on-error=false").ready()
    told = {name: made.reason(server, name) for name in names}
    assert "was not written by PyTorch, or is damaged: its first bytes are b'\\x7fELF" in told["noise"]
    assert "is cut off or damaged" in told["cut"]
    assert "was written by torch.save: it holds weights" in told["weights"] and "torch.export.save" in told["weights"]
    assert "was written by torch.save: it holds weights" in told["pickled"]
    assert "is a zip archive, but none of PyTorch's: it has a.npy" in told["zip"]
    assert "cannot load" in told["broken"] and "was not written by PyTorch" in told["empty"]
    assert not any(record.get("traceback") for record in server.log), server.text()


PARAMETER = 'parameters {{ key: "{0}" value {{ string_value: "{1}" }} }}'
GOOD = {
    "INFERENCE_MODE": "off", "DISABLE_OPTIMIZED_EXECUTION": "1", "ENABLE_NVFUSER": "false", "DISABLE_CUDNN": "true",
    "ENABLE_JIT_PROFILING": "false", "ENABLE_JIT_EXECUTOR": "true", "ENABLE_TENSOR_FUSER": "false",
    "INTRA_OP_THREAD_COUNT": "3", "INTER_OP_THREAD_COUNT": "2", "ENABLE_CACHE_CLEANING": "true",
}  # fmt: skip
WRONG = {
    "INFERENCE_MODE": ("perhaps", "failed to convert 'perhaps' to boolean: parameter 'INFERENCE_MODE'"),
    "INTRA_OP_THREAD_COUNT": ("two", "failed to convert 'two' to integral number"),
    "INTER_OP_THREAD_COUNT": ("-1", "parameter INTER_OP_THREAD_COUNT is -1"),
    "ENABLE_NVFUSER": ("true", "has no nvFuser"),
    "TORCH_COMPILE_OPTIONAL_PARAMETERS": ("{}", "torch.compile takes programs of torch.export"),
}


def test_parameters_are_honoured_or_refused(serve, tmp_path, ask):
    network = made.Network()
    chosen = "".join(PARAMETER.format(key, value) for key, value in GOOD.items())
    made.save(network, tmp_path / "models/all", NETWORK + chosen)
    for key, (value, _) in WRONG.items():
        made.save(network, tmp_path / "models" / key, NETWORK + PARAMETER.format(key, value))
    made.export(network, tmp_path / "models/known", (torch.ones(2, 64),), ({0: torch.export.Dim("n", max=8)},),
                PARAMETER.format("TORCH_COMPILE_OPTIONAL_PARAMETERS", '{\\"speed\\": 1}'))  # fmt: skip
    server = serve("--log-verbose=1", "--exit-on-error=false").ready()
    server.says("3 thread(s) for an operator, 2 for operators at one time")
    for text in ("Optimized execution is dis", "Inference Mode is dis", "cuDNN is dis", "Cache Cleaning is en"):
        server.says(text)
    for key, (_, text) in WRONG.items():
        assert text in made.reason(server, key), key
    assert "has 'speed'; it may have fullgraph, dynamic" in made.reason(server, "known")
    tensor = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": X[0].tolist()}
    status, answer = server.ask("POST", "/v2/models/all/infer", {"inputs": [tensor]})
    with torch.no_grad():
        wanted = network(torch.from_numpy(X[:1])).numpy()[0]
    assert status == 200 and np.allclose(answer["outputs"][0]["data"], wanted, atol=1e-5)


def test_a_configuration_is_completed_from_a_sample_or_from_its_inputs(serve, tmp_path, ask):
    models = tmp_path / "models"
    made.save(made.Network(), models / "sampled")
    np.savez(models / "sampled/1/sample.npz", x=X[:2])
    shaped = ", ".join(made.tensor(name, dims="-1, 4") for name in "ab")
    made.save(made.AddSub(), models / "shaped", f"input [ {shaped} ]")
    made.save(made.Words(), models / "words")
    np.savez(models / "words/1/sample.npz", words=np.array(["a", "b"]), times=np.ones((2, 1), np.float64))
    made.save(made.DictInDictOut(), models / "keys")
    np.savez(models / "keys/1/sample.npz", a=X, b=X)
    made.save(made.Network(), models / "silent")
    made.save(made.Network(), models / "misfit")
    np.savez(models / "misfit/1/sample.npz", x=X[:, :5])
    server = serve("--exit-on-error=false").ready()
    assert config_of(server, "sampled") == (4, [("x", "TYPE_FP32", [64])], [("OUTPUT__0", "TYPE_FP32", [10])])
    two = [("OUTPUT__0", "TYPE_FP32", [-1, 4]), ("OUTPUT__1", "TYPE_FP32", [-1, 4])]
    assert config_of(server, "shaped") == (0, [("a", "TYPE_FP32", [-1, 4]), ("b", "TYPE_FP32", [-1, 4])], two)
    assert config_of(server, "words")[1:] == (
        [("words", "TYPE_STRING", [1]), ("times", "TYPE_FP64", [1])],
        [("OUTPUT__0", "TYPE_STRING", [1]), ("OUTPUT__1", "TYPE_FP64", [1])],
    )
    assert config_of(server, "keys")[2] == [("total", "TYPE_FP32", [64]), ("difference", "TYPE_FP32", [64])]
    assert "Write its inputs into config.pbtxt" in made.reason(server, "silent")
    assert "mat1 and mat2 shapes cannot be multiplied" in made.reason(server, "misfit")


@pytest.mark.parametrize("kind", ["script", "export", "module"])
def test_instances_share_their_weights(serve, tmp_path, kind, ask):
    config = NETWORK + "instance_group { count: 2 kind: KIND_CPU }"
    network = made.Network(hidden=LARGE_BYTES // 4 // 64).eval()
    folder = tmp_path / "models/large"
    if kind == "script":
        made.save(network, folder, config)
    elif kind == "export":
        made.export(network, folder, (torch.ones(2, 64),), ({0: torch.export.Dim("n", max=8)},), config)
    else:
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(config + 'runtime: "model.py"')
        size = LARGE_BYTES // 4 // 64
        (folder / "1/model.py").write_text(MODULE.format(size=size))
        torch.save(network.state_dict(), folder / "1/model.pt")
    server = serve("--log-verbose=1", f"--environment-cache-dir={tmp_path / 'cache'}").ready()
    server.says("model 'large' shares 28")
    pids = [server.worker(f"large_0_{at}") for at in (0, 1)]
    found = [ask(server, "large", x=X)["y"] for _ in range(8)]
    with torch.no_grad():
        wanted = network(torch.from_numpy(X)).numpy()
    assert all(np.allclose(each, wanted, atol=1e-4) for each in found)
    for pid in pids:
        maps = [each for each in psutil.Process(pid).memory_maps() if each.path.endswith("weights.bin")]
        assert sum(each.rss for each in maps) > LARGE_BYTES and sum(each.private_dirty for each in maps) == 0


MODULE = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, {size}), torch.nn.Linear({size}, 10)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
"""


def test_a_worker_that_is_gone_comes_back(serve, tmp_path, ask):
    made.save(made.Network(), tmp_path / "models/net", NETWORK)
    server = serve().ready()
    wanted = ask(server, "net", x=X)["y"]
    before = server.worker("net_0")
    os.kill(before, signal.SIGSEGV)
    until(lambda: server.worker("net_0") != before and server.model_ready("net"), "another worker serves")
    assert np.array_equal(ask(server, "net", x=X)["y"], wanted)


def test_a_program_that_makes_the_c_library_abort_costs_its_request_alone(serve, tmp_path, ask):
    config = made.config([made.tensor("x", "INT64")], [made.tensor("y", "INT64")])
    made.save(made.Stray(), tmp_path / "models/stray", config)
    made.save(made.Network(), tmp_path / "models/net", NETWORK)
    server = serve().ready()
    assert ask(server, "stray", x=np.array([[3]]))["y"].tolist() == [[11]]
    before, other = server.worker("stray_0"), server.worker("net_0")
    with pytest.raises(InferenceServerException, match="SIGABRT") as told:
        ask(server, "stray", x=np.array([[-1]]))
    assert told.value.status() == "StatusCode.UNAVAILABLE"
    until(lambda: server.worker("stray_0") != before and server.model_ready("stray"), "another worker serves")
    assert ask(server, "stray", x=np.array([[2]]))["y"].tolist() == [[10]]
    assert server.worker("net_0") == other and ask(server, "net", x=X)["y"].shape == (3, 10)


def test_memory_that_runs_out_is_answered(serve, tmp_path, ask):
    made.save(made.Grows(), tmp_path / "models/grows", made.config([made.tensor("x", "INT64")], [made.tensor("y")]))
    server = serve().ready()
    with pytest.raises(InferenceServerException, match="ran out of memory"):
        ask(server, "grows", x=np.array([[1 << 48]]))
    assert ask(server, "grows", x=np.array([[5]]))["y"].shape == (1, 5)


def test_a_client_may_send_a_program_only_where_the_operator_allows_it(serve, tmp_path, connect, ask):
    content = (made.save(made.Network(), tmp_path / "elsewhere") / "1/model.pt").read_bytes()
    (tmp_path / "models").mkdir()
    config = (
        '{"backend": "pytorch", "max_batch_size": 4, "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [64]}], '
        '"output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [10]}]}'
    )
    files = {"file:1/model.pt": content}
    server = serve("--model-control-mode=explicit").ready()
    with pytest.raises(InferenceServerException, match=r"brings model\.pt.* only with --allow-pickled-models"):
        connect(server, grpcclient).load_model("net", config=config, files=files)
    server.end()
    server = serve("--model-control-mode=explicit", "--allow-pickled-models=true").ready()
    connect(server, grpcclient).load_model("net", config=config, files=files)
    assert ask(server, "net", x=X)["y"].shape == (3, 10)
