"""Programs of torch.export, AOTInductor packages and modules in a model.py: docs/pytorch.md (make test-torch)."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

pytest.importorskip("torch", reason="torch is in an environment of its own: make test-torch")

import torch  # noqa: E402 - it is there

from tests.system import torch_models as made  # noqa: E402

X = np.random.default_rng(3).standard_normal((5, 64), np.float32)
A, B = X[:, :4], X[:, 4:8]
BATCH = torch.export.Dim("batch", min=1, max=8)


def tensors(server, name, role):
    config = server.ask("GET", f"/v2/models/{name}/config")[1]
    return [(each["name"], each["data_type"], each["dims"]) for each in config[role]]


@pytest.fixture
def export(tmp_path):
    """Export a module into the test's repository: export(name, module, arguments, dynamic_shapes)."""

    def save(name, module, arguments, shapes, config=""):
        return made.export(module, tmp_path / "models" / name, arguments, shapes, config)

    return save


def test_a_folder_with_nothing_but_an_exported_program_is_served(serve, export, ask):
    network = made.Network().eval()
    export("network", network, (torch.ones(3, 64),), ({0: BATCH},))
    export("unbounded", network, (torch.ones(3, 64),), ({0: torch.export.Dim("rows")},))
    export("fixed", made.AddSub(), (torch.ones(2, 4), torch.ones(2, 4)), None)
    export("nested", made.Nested(), (torch.ones(3, 4), {"a": torch.ones(3, 4), "b": [torch.ones(3, 4)]}),
           ({0: BATCH}, {"a": {0: BATCH}, "b": [{0: BATCH}]}))  # fmt: skip
    server = serve().ready()
    config = server.ask("GET", "/v2/models/network/config")[1]
    assert (config["platform"], config["max_batch_size"]) == ("torch_aoti", 8) and "dynamic_batching" in config
    assert tensors(server, "network", "input") == [("x", "TYPE_FP32", [64])]
    assert tensors(server, "network", "output") == [("OUTPUT__0", "TYPE_FP32", [10])]
    with torch.no_grad():
        wanted = network(torch.from_numpy(X)).numpy()
    for name, rows in (("network", 1), ("network", 5), ("unbounded", 1), ("unbounded", 4)):
        assert np.allclose(ask(server, name, x=X[:rows])["OUTPUT__0"], wanted[:rows], atol=1e-6)
    assert tensors(server, "fixed", "input") == [("a", "TYPE_FP32", [2, 4]), ("b", "TYPE_FP32", [2, 4])]
    found = ask(server, "fixed", a=A[:2], b=B[:2])
    assert np.array_equal(found["OUTPUT__0"], A[:2] + B[:2]) and np.array_equal(found["OUTPUT__1"], A[:2] - B[:2])
    found = ask(server, "nested", x=A, values_a=B, values_b_0=A)
    assert np.array_equal(found["sum"], A + B) and np.array_equal(found["product"], A * A)


def test_tensors_of_a_program_have_tritons_names_too(serve, export, ask):
    arguments = (torch.ones(3, 4), {"a": torch.ones(3, 4), "b": [torch.ones(3, 4)]})
    shapes = ({0: BATCH}, {"a": {0: BATCH}, "b": [{0: BATCH}]})
    places = [made.tensor(name, dims="4") for name in ("ARGS[1][b][0]", "ARGS[0]", "ARGS[1][a]")]
    results = [made.tensor(name, dims="4") for name in ("RESULT[product]", "RESULT[sum]")]
    export("places", made.Nested(), arguments, shapes, made.config(places, results))
    numbers = [made.tensor(f"INPUT__{at}", dims="4") for at in (2, 0, 1)]
    export("numbers", made.Nested(), arguments, shapes,
           made.config(numbers, [made.tensor(f"OUTPUT__{at}", dims="4") for at in (1, 0)]))  # fmt: skip
    server = serve().ready()
    found = ask(server, "places", **{"ARGS[0]": A, "ARGS[1][a]": B, "ARGS[1][b][0]": A * 3})
    assert np.array_equal(found["RESULT[sum]"], A + B) and np.array_equal(found["RESULT[product]"], A * (A * 3))
    found = ask(server, "numbers", INPUT__0=A, INPUT__1=B, INPUT__2=A * 3)
    assert np.array_equal(found["OUTPUT__0"], A + B) and np.array_equal(found["OUTPUT__1"], A * (A * 3))


def test_a_configuration_is_held_against_the_program(serve, export, ask):
    arguments, shapes = (torch.ones(3, 64),), ({0: BATCH},)
    output = [made.tensor("y", dims="10")]
    more = "max_batch_size: 16"
    export("batch", made.Network(), arguments, shapes, made.config([made.tensor("x", dims="64")], output, more))
    export("type", made.Network(), arguments, shapes, made.config([made.tensor("x", "FP64", "64")], output))
    export("dims", made.Network(), arguments, shapes, made.config([made.tensor("x", dims="32")], output))
    server = serve("--exit-on-error=false").ready()
    assert "its program was exported for batches of at most 8: write max_batch_size: 8" in made.reason(server, "batch")
    assert "expects datatype TYPE_FP64 for input 'x', model provides TYPE_FP32" in made.reason(server, "type")
    assert "write dims: [64]" in made.reason(server, "dims")


def test_shapes_that_a_program_refuses_are_an_error_of_the_request(serve, export, ask):
    size = torch.export.Dim("size", min=2, max=6)
    export("sums", made.AddSub(), (torch.ones(3, 4), torch.ones(3, 4)), ({0: BATCH, 1: size}, {0: BATCH, 1: size}))
    server = serve().ready()
    with pytest.raises(InferenceServerException, match="PyTorch execute failure: Guard failed"):
        ask(server, "sums", a=X[:2, :7], b=X[:2, :7])
    with pytest.raises(InferenceServerException, match="PyTorch execute failure"):
        ask(server, "sums", a=A[:2], b=X[:2, :3])
    assert np.array_equal(ask(server, "sums", a=A, b=B)["OUTPUT__0"], A + B)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A network, and the folder of a model that is its package."""
    if shutil.which("g++") is None:
        pytest.skip("g++ compiles packages")
    network = made.Network().eval()
    folder = tmp_path_factory.mktemp("compiled")
    return network, made.compile_package(network, folder, (torch.ones(3, 64),), ({0: BATCH},))


def test_a_compiled_package_looks_at_what_it_is_given(serve, tmp_path, ask, compiled):
    network, folder = compiled
    for name, config in {
        "network": 'max_batch_size: 8 input [ { name: "ARGS[0]" data_type: TYPE_FP32 dims: [ 64 ] } ]',
        "wide": 'max_batch_size: 16 input [ { name: "INPUT__0" data_type: TYPE_FP32 dims: [ -1 ] } ] '
        'output [ { name: "RESULT" data_type: TYPE_FP32 dims: [ 10 ] } ]',
        "double": 'max_batch_size: 8 input [ { name: "INPUT__0" data_type: TYPE_FP64 dims: [ 64 ] } ] '
        'output [ { name: "RESULT" data_type: TYPE_FP32 dims: [ 10 ] } ]',
    }.items():
        shutil.copytree(folder, tmp_path / "models" / name)
        (tmp_path / "models" / name / "config.pbtxt").write_text(config)
    server = serve().ready()
    assert tensors(server, "network", "output") == [("OUTPUT__0", "TYPE_FP32", [10])]
    with torch.no_grad():
        wanted = network(torch.from_numpy(X)).numpy()
    assert np.allclose(ask(server, "network", **{"ARGS[0]": X})["OUTPUT__0"], wanted, atol=1e-5)
    assert np.allclose(ask(server, "wide", INPUT__0=X[:1])["RESULT"], wanted[:1], atol=1e-5)
    for rows, size in ((9, 64), (2, 63)):
        with pytest.raises(InferenceServerException, match="PyTorch execute failure: (?s:.*)dim value"):
            ask(server, "wide", INPUT__0=np.zeros((rows, size), np.float32))
    with pytest.raises(InferenceServerException, match="PyTorch execute failure: (?s:.*)unmatched dtype"):
        ask(server, "double", INPUT__0=X.astype(np.float64))


def test_a_package_that_nobody_describes_is_refused_with_what_to_write(serve, tmp_path, compiled):
    shutil.copytree(compiled[1], tmp_path / "models/silent")
    told = made.reason(serve("--exit-on-error=false").ready(), "silent")
    assert "says neither types nor shapes" in told and "numpy.savez('sample.npz', **{'ARGS[0]': ...})" in told


COMPILED = 'parameters { key: "TORCH_COMPILE_OPTIONAL_PARAMETERS" value { string_value: "SAID" } }'


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ compiles programs")
def test_programs_and_modules_are_compiled_where_a_parameter_says_so(serve, tmp_path, export, ask, monkeypatch):
    network = made.Network().eval()
    said = COMPILED.replace("SAID", '{\\"fullgraph\\": true, \\"dynamic\\": true}')
    sides = [made.tensor("x", dims="64")], [made.tensor("y", dims="10")]
    export("exported", network, (torch.ones(3, 64),), ({0: BATCH},), made.config(*sides) + said)
    folder = tmp_path / "models/module/1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(made.config(*sides, 'runtime: "model.py" max_batch_size: 8') + said)
    (folder / "model.py").write_text(NETWORK)
    torch.save(network.state_dict(), folder / "model.pt")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "made"))
    server = serve().ready()
    with torch.no_grad():
        wanted = network(torch.from_numpy(X)).numpy()
    for name, values in (("exported", wanted), ("module", np.cos(wanted))):
        before = set((tmp_path / "made").rglob("*.so"))
        for rows in (5, 2):
            assert np.allclose(ask(server, name, x=X[:rows])["y"], values[:rows], atol=1e-5), name
        assert set((tmp_path / "made").rglob("*.so")) - before, f"the compiler has made code of '{name}'"


NETWORK = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 32), torch.nn.Linear(32, 10)

    def forward(self, x):
        return self.second(torch.relu(self.first(x))).cos()
"""
IMPORTED = """
import torch
from torch.nn import Bilinear
"""
OWN = (
    IMPORTED
    + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, a, b):
        return (a - b) * self.scale, a
"""
)


def test_a_module_in_a_file_is_called_in_the_configurations_order(serve, tmp_path, ask):
    config = made.config(
        [made.tensor("b", dims="4"), made.tensor("a", dims="4")],
        [made.tensor("difference", dims="4"), made.tensor("first", dims="4")],
        'runtime: "model.py" max_batch_size: 8',
    )
    folder = tmp_path / "models/net"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config)
    (folder / "1/model.py").write_text(OWN)
    torch.save({"scale": torch.full((4,), 3.0)}, folder / "1/model.pt")
    made.save(made.AddSub(), tmp_path / "models/script", config)
    server = serve().ready()
    found = ask(server, "net", b=A, a=B)
    assert np.allclose(found["difference"], (A - B) * 3) and np.array_equal(found["first"], A)
    assert np.array_equal(ask(server, "script", b=A, a=B)["difference"], A + B)


def test_what_is_wrong_with_a_module_is_told(serve, tmp_path):
    config = made.config([made.tensor("a")], [made.tensor("b")], 'runtime: "model.py" max_batch_size: 8')
    files = {
        "nothing": None,
        "no_class": "import torch\n",
        "arguments": OWN.replace("def __init__(self):", "def __init__(self, size):"),
        "raises": "raise ValueError('no luck')",
    }
    for name, code in files.items():
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(config)
        if code is not None:
            (tmp_path / "models" / name / "1/model.py").write_text(code)
    server = serve("--exit-on-error=false").ready()
    assert "No model found in" in made.reason(server, "nothing")
    assert "has no class derived from torch.nn.Module" in made.reason(server, "no_class")
    told = made.reason(server, "arguments")
    assert "class Net of" in told and "is made without arguments" in told
    assert "ValueError: no luck" in made.reason(server, "raises")
