"""Modules, TorchScript and programs of torch.export in all formats of this machine (make test-torch)."""

from __future__ import annotations

import importlib
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is in an environment of its own: make test-torch")

import torch  # noqa: E402 - it is there

from tests.convert import torch_factories as made  # noqa: E402
from tests.convert.made_models import asked_of, by_name, converted  # noqa: E402
from tisfast.convert.signature import Tensor  # noqa: E402
from tisfast.errors import BadRequest  # noqa: E402

FACTORIES = "tests.convert.torch_factories"
X = np.random.default_rng(1).standard_normal((3, 8), np.float32)
SCRIPTS = ["torchscript fp32", "torchscript-script fp32"]
GRAPHS = ["onnx fp32", "onnx fp16", "openvino fp32", "openvino fp16"]
SHORT = {"seconds": 0.1, "concurrency": (1,), "samples": {"x": X}}
TRACED = {"seconds": 0.1, "concurrency": (1,), "precisions": ["fp32"], "targets": ["torchscript"]}
ONE_SHAPE = "all samples have the same sizes"


def statuses(found):
    return {each.name: (each.status, each.reason) for each in found.tries if each.status != "ok"}


def test_a_module_is_made_in_all_formats(tmp_path):
    found = converted(f"{FACTORIES}:network", **SHORT, output=tmp_path / "out")
    assert [each.name for each in found.tries] == ["pt2 fp32", *SCRIPTS, *GRAPHS] and statuses(found) == {}
    assert found.signature.inputs == (Tensor("x", "FP32", (-1, 8)),) and found.signature.batches
    assert found.signature.outputs == (Tensor("output__0", "FP32", (-1, 3)),)
    assert found.model == tmp_path / "out" / "network" and (found.model / "1").is_dir()


def test_a_module_that_this_program_has_made_is_converted():
    """Of a class that no other process can import."""

    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x * 2

    found = converted(Doubled(), **SHORT, targets=["torchscript", "onnx"], precisions=["fp32"])
    assert found.name == "Doubled" and by_name(found)["torchscript fp32"].status == "ok"
    assert by_name(found)["onnx fp32"].status == "ok"


def test_what_a_trace_or_fp16_makes_wrong_is_refused():
    samples = {"x": np.concatenate([np.ones((1, 8), np.float32), -np.ones((2, 8), np.float32)])}
    found = converted(f"{FACTORIES}:Branch", **{**SHORT, "samples": samples}, targets=["pt2", "torchscript"])
    tries = by_name(found)
    assert tries["torchscript fp32"].status == "wrong" and tries["torchscript-script fp32"].status == "ok"
    assert tries["pt2 fp32"].status == "failed" and "data-dependent" in tries["pt2 fp32"].reason
    found = converted(f"{FACTORIES}:large", **SHORT, targets=["onnx"])
    assert [each.status for each in found.tries] == ["ok", "wrong"]


def test_fp16_is_made_where_nobody_asks_for_fp32():
    found = converted(f"{FACTORIES}:network", **SHORT, precisions=["fp16"])
    assert [(each.name, each.status, each.reason) for each in found.tries] == [
        (name, "ok", "") for name in ("onnx fp16", "openvino fp16")
    ]
    assert all(each.max_absolute > 1e-5 for each in found.tries)  # as FP16 rounds


def test_files_of_torch_are_sources(tmp_path):
    module = made.Network().eval()
    batch = torch.export.Dim("batch")  # of any size
    torch.export.save(
        torch.export.export(module, (torch.ones(2, 8),), dynamic_shapes=({0: batch},)), tmp_path / "a.pt2"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        torch.jit.trace(module, torch.ones(2, 8)).save(tmp_path / "a.pt")
    for file, first in (("a.pt2", "pt2 fp32"), ("a.pt", "torchscript fp32")):
        with pytest.raises(BadRequest, match="can run code when it is read.*--allow-pickled-models"):
            converted(tmp_path / file, **SHORT)
        found = converted(tmp_path / file, **SHORT, allow_pickled=True, precisions=["fp32"])
        assert [each.name for each in found.tries] == [first, *GRAPHS[::2]] and statuses(found) == {}
        assert (
            found.signature.batches and by_name(found)[first].max_absolute < 1e-6
        )  # rows of a batch are added up in another order


def test_a_program_of_one_shape_is_served_in_that_shape(tmp_path):
    program = torch.export.export(made.Network().eval(), (torch.ones(3, 8),))
    torch.export.save(program, tmp_path / "fixed.pt2")
    found = converted(tmp_path / "fixed.pt2", **SHORT, allow_pickled=True, precisions=["fp32"])
    assert statuses(found) == {} and found.max_batch_size == 0
    assert found.signature.inputs == (Tensor("x", "FP32", (3, 8)),)
    assert any("takes exactly 3 rows in a request" in each and "Dim('batch')" in each for each in found.notes)
    samples = {"x": np.concatenate([X, X])}
    with pytest.raises(BadRequest, match=r"'x' is shaped \[6, 8\], and the program was exported for \[3, 8\]"):
        converted(tmp_path / "fixed.pt2", **{**SHORT, "samples": samples}, allow_pickled=True)


def test_torchscript_of_code_is_made_in_openvino_too(tmp_path):
    """Its softmax has no types, of which OpenVINO's reader makes a graph that no device runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        torch.jit.script(made.Scores()).save(tmp_path / "scores.pt")
    found = converted(tmp_path / "scores.pt", **SHORT, targets=["openvino"], allow_pickled=True)
    assert statuses(found) == {} and found.signature.batches and len(found.tries) == 2


def test_a_checkpoint_is_no_torchscript(tmp_path):
    torch.save(made.Network().state_dict(), tmp_path / "state.pt")
    torch.save(made.Network(), tmp_path / "whole.pt")
    torch.save(made.Network().state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for file, said in [
        ("state.pt", "is a checkpoint of torch.save, and no TorchScript: give the module itself, as FILE.py:FACTORY"),
        ("whole.pt", "is a checkpoint of torch.save, and no TorchScript"),
        ("old.pt", "a checkpoint of an older torch.save, or damaged; give the module itself"),
    ]:
        with pytest.raises(BadRequest, match=said):
            converted(tmp_path / file, **SHORT, allow_pickled=True)


def test_outputs_of_a_dictionary_have_its_names():
    found = converted(f"{FACTORIES}:Pair", seconds=0.1, concurrency=(1,), samples={"a": X, "b": X}, precisions=["fp32"])
    assert statuses(found) == {}
    assert found.signature.outputs == (Tensor("total", "FP32", (-1, 8)), Tensor("first", "FP32", (-1,)))


def test_what_is_no_module_or_does_not_fit_is_a_sentence(tmp_path):
    (tmp_path / "mine.py").write_text("import nix\n")
    for source, samples, said in [
        (f"{FACTORIES}:network", None, "does not tell the shapes of its inputs: give --samples"),
        (f"{FACTORIES}:network", {"z": X}, "the samples have an array 'z', and the program's inputs are x"),
        (f"{FACTORIES}:network", {"x": X[:, :7]}, "itself does not run: RuntimeError: mat1 and mat2"),
        (f"{FACTORIES}:network", {"x": X.astype(float)}, r"'x' is FP64, numpy's own type, .*: x.astype\('f4'\) makes"),
        (f"{FACTORIES}:Sides", {"left": X, "right": X}, "an array 'left', .* inputs are sides: .* forward takes each"),
        (f"{FACTORIES}:Nested", {"x": X}, "this one returns one with a list: write a module around it"),
        (f"{FACTORIES}:Nothing", {"x": X}, "this one returns one with a NoneType: write a module around it"),
        (f"{FACTORIES}:number", {"x": X}, "gives a int, and must give a torch.nn.Module"),
        (f"{FACTORIES}:nix", {"x": X}, "has no callable 'nix'"),
        ("nix.nix:nix", {"x": X}, "there is no module nix"),
        (
            f"{tmp_path / 'mine.py'}:network",
            {"x": X},
            "itself does not run: ModuleNotFoundError: No module named 'nix'",
        ),
    ]:
        with pytest.raises(BadRequest, match=said):
            converted(source, **{**SHORT, "samples": samples})


def test_inputs_behind_one_that_is_not_given_keep_their_names():
    seen = []
    found = converted(
        f"{FACTORIES}:Optional", **{**SHORT, "samples": {"shift": X, "x": 2 * X}}, precisions=["fp32"],
        verify=lambda answers, expected: bool(seen.append((answers, expected)) or True),
    )  # fmt: skip
    assert [each.name for each in found.signature.inputs] == ["x", "shift"]
    for _, expected in seen:
        assert np.array_equal(expected[0]["output__0"], 3 * X[:1])
    right = [np.array_equal(answers[0]["output__0"], 3 * X[:1]) for answers, _ in seen]
    assert statuses(found) == {} and right == [True] * 5


def test_rows_of_a_module_that_influence_each_other_are_never_joined():
    found = converted(f"{FACTORIES}:Centred", **SHORT, precisions=["fp32"])
    assert statuses(found) == {} and found.signature.mixes and "influence each other" in found.notes[0]


def test_rounding_of_large_sums_is_no_influence_of_rows():
    random = np.random.default_rng(0)
    asked = {**SHORT, "samples": {"input": random.standard_normal((16, 512)).astype("f")}}
    found = converted(f"{FACTORIES}:wide", **asked, targets=["torchscript"])
    assert statuses(found) == {} and found.signature.batches and not found.signature.mixes and found.notes == ()
    assert found.tries[0].max_absolute > 1e-3  # of sums that come out near 0, too


def tokens(length):
    ids = np.random.default_rng(length).integers(0, 50, (3, length))
    mask = np.ones_like(ids)
    mask[0, -2:] = 0
    return {"ids": ids, "mask": mask}


def steps(length):
    return {"x": np.random.default_rng(length).standard_normal((3, length, 5), np.float32)}


@pytest.mark.parametrize(("module", "sample", "fixed"), [("Sentences", tokens, ()), ("Signals", steps, ("pt2 fp32",))])
def test_lengths_that_differ_between_samples_stay_open(tmp_path, module, sample, fixed):
    """And others are taken, too; torch.export writes out the steps of an LSTM."""
    options = {"seconds": 0.1, "concurrency": (1,), "precisions": ["fp32"], "samples": [sample(7), sample(9)]}
    found = converted(f"{FACTORIES}:{module}", **options, targets=["pt2", "torchscript"])
    assert len(found.tries) == 3 and set(statuses(found)) == set(fixed)
    for each in statuses(found).values():
        assert each[0] == "failed" and "dimension 1 of input 'x' at 9" in each[1] and "have 7 and 9 there" in each[1]
    assert {each.dims[:2] for each in (*found.signature.inputs, *found.signature.outputs)} == {(-1, -1)}
    assert found.signature.joined and not any(ONE_SHAPE in each for each in found.notes)
    for name in ("onnx", "openvino"):
        own = converted(f"{FACTORIES}:{module}", **options, targets=[name], output=tmp_path / name, name="net")
        assert own.best is not None
        sent = sample(12)
        with torch.no_grad():
            wanted = getattr(made, module)().eval()(*(torch.from_numpy(each) for each in sent.values()))
        answer = asked_of(tmp_path / name, "net", sent)
        assert np.allclose(answer["output__0"], wanted.numpy(), atol=1e-4)


def test_a_first_dimension_that_is_no_batch_stays_whole(tmp_path):
    options = {"seconds": 0.1, "concurrency": (1,), "precisions": ["fp32"], "targets": ["torchscript", "onnx"]}
    samples = [steps(7), {"x": steps(7)["x"][:2]}]
    found = converted(f"{FACTORIES}:Instants", **options, samples=samples, no_batch=True, output=tmp_path / "out")
    assert statuses(found) == {} and not found.signature.batches and found.max_batch_size == 0
    assert found.signature.inputs == (Tensor("x", "FP32", (-1, 7, 5)),) and found.rows == 2
    sent = {"x": np.concatenate([steps(7)["x"]] * 2)}
    answer = asked_of(tmp_path / "out", "Instants", sent)
    assert np.allclose(answer["output__0"], sent["x"].cumsum(0), atol=1e-4)


def test_time_in_front_is_no_batch_of_a_program():
    options = {"seconds": 0.1, "concurrency": (1,), "targets": ["pt2"], "samples": steps(7)}
    found = converted(f"{FACTORIES}:TimeInFront", **options)
    ((status, reason),) = statuses(found).values()
    assert status == "failed" and "does not keep the batch open" in reason and reason.endswith("say --no-batch")
    assert statuses(converted(f"{FACTORIES}:TimeInFront", **options, no_batch=True)) == {}


@pytest.mark.parametrize(
    ("module", "samples", "told"),
    [
        ("Signals", steps(7), "'x' [-1, 7, 5]"),
        ("Sentences", tokens(7), "'ids' [-1, 7] and 'mask' [-1, 7]"),
    ],
)
def test_a_length_that_all_samples_have_is_fixed_and_told(module, samples, told):
    found = converted(f"{FACTORIES}:{module}", **TRACED, samples=samples)
    assert {each.dims[:2] for each in found.signature.inputs} == {(-1, 7)}
    assert found.notes == (
        f"{ONE_SHAPE} beside the batch, and what is made takes these alone: {told}; if the source takes others, give "
        "samples of several sizes to keep them open",
    )


def test_of_features_nothing_is_told():
    assert converted(f"{FACTORIES}:network", **TRACED, samples={"x": X}).notes == ()


@pytest.mark.parametrize("is_open", [True, False])
def test_a_program_itself_tells_which_sizes_are_open(tmp_path, is_open):
    """Whatever all samples have there."""
    dims = {0: torch.export.Dim("batch"), **({1: torch.export.Dim("length")} if is_open else {})}
    example = (torch.from_numpy(steps(7)["x"]),)
    program = torch.export.export(made.Scores(), example, dynamic_shapes={"x": dims})
    torch.export.save(program, str(tmp_path / "net.pt2"))
    options = {**TRACED, "targets": ["pt2", "onnx"], "samples": steps(7), "allow_pickled": True}
    found = converted(tmp_path / "net.pt2", **options)
    length = -1 if is_open else 7
    assert {each.dims for each in (*found.signature.inputs, *found.signature.outputs)} == {(-1, length, 5)}
    assert statuses(found) == {} and found.notes == ()


def test_a_program_is_not_asked_with_sizes_that_no_sample_has():
    found = converted(f"{FACTORIES}:Trusting", **TRACED, samples=steps(7))
    assert by_name(found)["torchscript fp32"].status == "ok"


def test_a_module_of_a_file_beside_the_users_program_is_converted(tmp_path, monkeypatch):
    (tmp_path / "halving_module.py").write_text(
        "import torch\n\n\nclass Halved(torch.nn.Module):\n    def forward(self, x):\n        return x / 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("halving_module").Halved()
    found = converted(module, **{**TRACED, "targets": ["pt2", "torchscript"]}, samples={"x": X})
    assert statuses(found) == {} and found.name == "Halved"
    sys.path.remove(str(tmp_path))
    with pytest.raises(BadRequest, match="the module Halved needs the module 'halving_module', which only this prog"):
        converted(module, **TRACED, samples={"x": X})
