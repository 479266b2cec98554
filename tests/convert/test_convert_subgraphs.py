"""Graphs of ONNX with subgraphs: weights that lie in files, names that are used inside, and FP16 of all of it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")
onnx = pytest.importorskip("onnx")

import onnxruntime  # noqa: E402 - it is there
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tests.convert.made_models import converted  # noqa: E402
from tisfast.convert.onnx_graphs import rename_outputs  # noqa: E402
from tisfast.errors import BadRequest  # noqa: E402

X = np.array([[1, 2], [4, -4], [-5, -6]], np.float32)
RANDOM = np.random.default_rng(3)
THEN, ELSE = (RANDOM.standard_normal((2, 3)).astype(np.float32) for _ in range(2))
FLOAT = TensorProto.FLOAT


def value(name, *dims):
    return helper.make_tensor_value_info(name, FLOAT, dims or None)


def branch(name, weights, weights_name, output):
    nodes = [helper.make_node("MatMul", ["x", weights_name], ["product"]),
             helper.make_node("Add", ["product", "shift"], [output])]  # fmt: skip
    return helper.make_graph(nodes, name, [], [value(output)], [numpy_helper.from_array(weights, weights_name)])


def choice(weights=("w", "w"), outputs=("chosen", "chosen")):
    """x @ THEN + 1 where its largest is above 3, else x @ ELSE + 1: branches use the graph's input and a constant."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "three"], ["large"]),
        helper.make_node("If", ["large"], ["y"], then_branch=branch("then", THEN, weights[0], outputs[0]),
                         else_branch=branch("else", ELSE, weights[1], outputs[1])),
    ]  # fmt: skip
    constants = [numpy_helper.from_array(np.float32(number), name) for name, number in (("three", 3), ("shift", 1))]
    graph = helper.make_graph(nodes, "choice", [value("x", "n", 2)], [value("y", "n", 3)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def ran(model, x=X):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, {"x": x}), strict=True))


def test_weights_of_subgraphs_that_lie_in_files_go_along(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    model = choice()
    for attribute in model.graph.node[2].attribute:
        tensor = attribute.g.initializer[0]
        file = f"{attribute.name}.weights"
        (folder / file).write_bytes(tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, file)
        tensor.ClearField("raw_data")
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    asked = {"samples": {"x": X}, "targets": ["onnx"], "concurrency": (1,)}
    half = converted(folder / "net.onnx", **asked, precisions=["fp16"])
    found = converted(folder / "net.onnx", **asked, precisions=["fp32"], output=tmp_path / "out")
    assert [(each.name, each.status, each.reason) for each in (*found.tries, *half.tries)] == [
        ("onnx fp32", "ok", ""), ("onnx fp16", "ok", "")
    ]  # fmt: skip
    assert {"then_branch.weights", "else_branch.weights"} <= {each.name for each in (found.model / "1").iterdir()}


def test_weights_outside_of_the_folder_are_refused_in_subgraphs_too(tmp_path):
    model = choice()
    tensor = model.graph.node[2].attribute[0].g.initializer[0]
    (tmp_path / "secret").write_bytes(tensor.raw_data)
    (tmp_path / "source").mkdir()
    onnx.external_data_helper.set_external_data(tensor, "../secret")
    tensor.ClearField("raw_data")
    (tmp_path / "source" / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BadRequest, match="secret"):
        converted(tmp_path / "source" / "net.onnx", samples={"x": X}, targets=["onnx"], precisions=["fp32"])


@pytest.mark.parametrize("names", [("w", "v"), ("w", "w")])
def test_branches_of_one_name_are_made_in_fp16(tmp_path, names):
    """Also where both branches call their weights alike."""
    (tmp_path / "net.onnx").write_bytes(choice(names).SerializeToString())
    found = converted(tmp_path / "net.onnx", samples={"x": X}, targets=["onnx", "openvino"], concurrency=(1,))
    assert {each.name: (each.status, each.reason) for each in found.tries} == {
        name: ("ok", "") for name in ("onnx fp32", "onnx fp16", "openvino fp32", "openvino fp16")
    }


@pytest.mark.parametrize("inner", ["chosen", "predict"])
def test_an_output_is_renamed_where_subgraphs_use_its_value(inner):
    """A second subgraph reads the output `y`, and a value of its own may have the new name of that."""
    model = choice()
    own = [helper.make_graph([helper.make_node(kind, ["y"], [inner]), helper.make_node("Neg", [inner], ["end"])],
                             kind, [], [value("end")]) for kind in ("Exp", "Abs")]  # fmt: skip
    model.graph.node.append(helper.make_node("If", ["large"], ["other"], then_branch=own[0], else_branch=own[1]))
    model.graph.output.append(value("other", "n", 3))
    rename_outputs(model.graph, ["predict", "transform"])
    for x, weights, kind in ((X, THEN, np.exp), (X[:1], ELSE, np.abs)):
        found = ran(model, x)
        assert list(found) == ["predict", "transform"]
        assert np.allclose(found["predict"], x @ weights + 1, rtol=1e-4)
        assert np.allclose(found["transform"], -kind(x @ weights + 1), rtol=1e-4)


def test_outputs_may_change_names_with_each_other_and_with_inner_values():
    nodes = [helper.make_node("Neg", ["x"], ["predict"]), helper.make_node("Abs", ["predict"], ["a"]),
             helper.make_node("Exp", ["predict"], ["b"])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", [value("x", "n", 2)], [value("a", "n", 2), value("b", "n", 2)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    rename_outputs(model.graph, ["b", "predict"])
    found = ran(model)
    assert np.allclose(found["b"], np.abs(X)) and np.allclose(found["predict"], np.exp(-X))


def test_a_graph_with_fewer_outputs_than_names_takes_the_first_ones():
    model = choice()
    rename_outputs(model.graph, ["a", "b"])
    assert [each.name for each in model.graph.output] == ["a"]


def test_what_cannot_be_renamed_is_refused():
    with pytest.raises(BadRequest, match="an input and an output of the name 'x'"):
        rename_outputs(choice().graph, ["x"])
