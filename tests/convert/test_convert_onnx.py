"""ONNX in all formats of this machine, by the real frameworks: right ones are served, wrong ones are refused."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from tests.convert.made_models import (  # noqa: E402
    by_name,
    centred,
    converted,
    network,
    save,
    scores,
    too_large_for_fp16,
)
from tests.system import onnx_models as made  # noqa: E402
from tisfast.client import Client  # noqa: E402
from tisfast.convert import output, trial  # noqa: E402
from tisfast.convert.onnx_fp16 import write_fp16  # noqa: E402
from tisfast.convert.output import PAGE, REPORT  # noqa: E402
from tisfast.errors import BadRequest, Unavailable  # noqa: E402
from tisfast.local_server import ROOT, LocalServer  # noqa: E402

ALL = ["onnx fp32", "onnx fp16", "openvino fp32", "openvino fp16"]
HERE = {"targets": ["onnx", "openvino"]}  # no GPU is needed
X = np.random.default_rng(1).standard_normal((3, 8), np.float32)


def test_a_network_is_made_in_all_formats_and_the_best_is_served(tmp_path):
    source = network(tmp_path)
    found = converted(source, samples={"x": X}, output=tmp_path / "out", concurrency=(1, 2), **HERE)
    tries = by_name(found)
    assert list(tries) == ALL and [each.status for each in found.tries] == ["ok"] * 4
    assert all([level.concurrency for level in each.measured] == [1, 2] for each in found.tries)
    assert all(level.throughput > 0 and level.errors == 0 for each in found.tries for level in each.measured)
    assert tries["onnx fp32"].max_absolute == 0 < tries["onnx fp16"].max_absolute < 0.01
    assert tries["onnx fp16"].nbytes < tries["onnx fp32"].nbytes == source.stat().st_size
    assert (found.rows, found.max_batch_size, found.drawn) == (3, 4, False)
    assert found.best in found.tries and found.model == tmp_path / "out" / "net"
    report = json.loads((tmp_path / "out" / REPORT).read_text())
    assert report["best"] == found.best.name and [each["format"] for each in report["tries"]][0] == "onnx"
    assert sorted(os.listdir(tmp_path / "out")) == ["net", PAGE, REPORT]
    server = LocalServer([f"--model-repository={tmp_path / 'out'}", "--http-port=0", "--allow-grpc=false",
                          "--allow-metrics=false", "--log-info=false"])  # fmt: skip
    server.start()
    try:
        with Client(server.http_address) as client:
            config = client.model("net").config()
            assert config["max_batch_size"] == 4 and "dynamic_batching" in config
            assert config["backend"] == found.best.backend
            assert client.model("net").infer({"x": X}).y.shape == (3, 3)
    finally:
        server.stop()


def test_what_is_wrong_in_fp16_is_refused(tmp_path):
    found = converted(too_large_for_fp16(tmp_path), samples={"x": X}, output=tmp_path / "out", targets=["onnx"])
    wrong = by_name(found)["onnx fp16"]
    assert wrong.status == "wrong" and wrong.measured == () and wrong.max_relative > 0.9
    assert "output 'y' of sample 0: 8 of 8 elements differ by more than 1.07e+04 + 0.01 * |x|" in wrong.reason
    assert found.best.name == "onnx fp32"


def test_where_all_are_wrong_nothing_is_written(tmp_path):
    options = {"samples": {"x": X}, "output": tmp_path / "out", "targets": ["onnx"], "precisions": ["fp16"]}
    found = converted(too_large_for_fp16(tmp_path), **options)
    assert (found.best, found.model) == (None, None)
    assert sorted(os.listdir(tmp_path / "out")) == [PAGE, REPORT]
    allowed = converted(too_large_for_fp16(tmp_path), **options, verify=lambda *_: True)
    assert allowed.best.name == "onnx fp16" and allowed.model.is_dir()


def test_a_model_without_batches_and_one_of_texts_are_compared(tmp_path):
    graph = made.model([made.node("Identity", ["a"], ["b"])], [("a", "BYTES", (2,))], [("b", "BYTES", (2,))])
    (tmp_path / "texts.onnx").write_bytes(graph.SerializeToString())
    found = converted(
        tmp_path / "texts.onnx", samples={"a": np.array(["x", "ü"])}, targets=["onnx"], precisions=["fp32"]
    )
    assert found.tries[0].status == "ok" and found.max_batch_size == 0
    assert not found.signature.batches


@pytest.mark.parametrize("kind", [object, "S", "U"])
def test_texts_of_all_types_are_the_same(tmp_path, kind):
    graph = made.model([made.node("Identity", ["a"], ["b"])], [("a", "BYTES", ("n", 2))], [("b", "BYTES", ("n", 2))])
    texts = np.array([["a", "b"], ["c", ""]], object).astype(kind)
    found = converted(save(tmp_path, "texts.onnx", graph), samples={"a": texts}, targets=["onnx"])
    assert found.tries[0].status == "ok", found.tries[0].reason


def test_a_scalar_of_each_row_is_compared(tmp_path):
    nodes = [made.node("ReduceSum", ["a", "axes"], ["b"], keepdims=0)]
    axes = made.constant("axes", np.array([1], np.int64))
    graph = made.model(nodes, [("a", "FP32", ("n", 2))], [("b", "FP32", ("n",))], [axes])
    (tmp_path / "sums.onnx").write_bytes(graph.SerializeToString())
    found = converted(tmp_path / "sums.onnx", precisions=["fp32"], **HERE)
    assert [each.status for each in found.tries] == ["ok", "ok"] and found.drawn


def test_a_model_of_scalars_without_batches_is_served(tmp_path):
    numbers = [(name, "FP32", ()) for name in "aby"]
    graph = made.model([made.node("Add", ["a", "b"], ["y"])], numbers[:2], numbers[2:])
    source, samples = save(tmp_path, "scalars.onnx", graph), {"a": np.float32(1), "b": np.float32(2)}
    found = converted(source, samples=samples, precisions=["fp32"], output=tmp_path / "out")
    assert [(each.status, each.max_absolute) for each in found.tries if each.status != "skipped"] == [("ok", 0)] * 2
    assert "reshape" not in (tmp_path / "out/scalars/config.pbtxt").read_text()


def test_weights_beside_the_graph_go_along(tmp_path):
    import onnx

    source = network(tmp_path, "plain.onnx")
    graph = onnx.load(source)
    onnx.save(graph, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    found = converted(tmp_path / "net.onnx", samples={"x": X}, output=tmp_path / "out", **HERE)
    assert [each.status for each in found.tries] == ["ok"] * 4, [each.reason for each in found.tries]


def test_what_this_machine_lacks_is_a_row_with_the_command(tmp_path, monkeypatch):
    look = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("openvino", "onnx") else look(name))
    found = converted(network(tmp_path), samples={"x": X}, **HERE)
    assert [each.status for each in found.tries] == ["ok", "skipped", "skipped", "skipped"]
    assert by_name(found)["onnx fp16"].reason == (
        "needs onnx, which this Python does not have: pip install 'tisfast[convert]'"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match=r"the source needs onnxruntime.*pip install 'tisfast\[onnx\]'"):
        converted(network(tmp_path))


def test_what_cannot_be_is_refused_before_anything_runs(tmp_path):
    source = network(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "out" / "net").mkdir(parents=True)
    (tmp_path / "other.pt").touch()
    for given, options, said in [
        (tmp_path / "nix.onnx", {}, "nix.onnx: there is no such file"),
        (tmp_path, {}, "a folder without a model"),
        (tmp_path / "file", {}, "no model that tisfast convert takes"),
        (source, {"output": tmp_path / "file" / "x"}, "cannot be written to"),
        (source, {"output": tmp_path / "out"}, "has 'net' already, and tisfast convert has not written it"),
        (source, {"samples": tmp_path / "nix.npz"}, "there is no such file"),
        (source, {"targets": ["nix"]}, "--target nix is no format that is known"),
        (source, {"precisions": ["int4"]}, "--precision int4 is not known"),
        (source, {"rtol": -1}, "--rtol is -1, and must be a number from 0"),
        (source, {"max_batch_size": 0}, "--max-batch-size is 0"),
        (source, {"concurrency": (0,)}, "--concurrency is 0: give a whole number"),
        (source, {"colour": 1}, "convert has no option 'colour'"),
    ]:
        with pytest.raises(BadRequest, match=said):
            converted(given, **options)


def test_what_the_source_says_against_it_is_told(tmp_path):
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(network(tmp_path).read_bytes()[:300])
    with pytest.raises(BadRequest, match="cut.onnx itself does not run: .*Protobuf parsing failed"):
        converted(cut, output=tmp_path / "out")
    with pytest.raises(BadRequest, match=r"shaped \[3, 7\], and the inputs are x FP32 \[-1, 8\]"):
        converted(network(tmp_path), samples={"x": X[:, :7]}, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # as a disk that has no more room
from tisfast.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_full_temporary_folder_is_a_sentence(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((10_000, 8), np.float32))
    command = ["convert", network(tmp_path), "--samples", tmp_path / "x.npz", "-o", tmp_path / "out"]
    ran = subprocess.run(
        [sys.executable, "-c", FULL, *map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    said = rf"the temporary folder {tempfile.gettempdir()} .* \(File too large\).*set TMPDIR"
    assert ran.returncode == 1 and re.search(said, ran.stderr), ran.stderr
    assert not (tmp_path / "out").exists()


def test_a_graph_in_fp16_is_valid_onnx(tmp_path):
    """ONNX Runtime reads nodes in any order, others do not."""
    import onnx

    write_fp16(network(tmp_path), tmp_path / "half.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "half.onnx"), full_check=True)


def test_a_function_of_the_users_judges_in_place_of_tolerances(tmp_path):
    seen = []

    def verify(found, expected):
        seen.append([len(found), len(expected), found[0].keys() == expected[0].keys()])
        return np.abs(found[0]["y"] - expected[0]["y"]).max() == 0

    options = {"samples": {"x": X}, "targets": ["onnx"]}
    tries = by_name(converted(too_large_for_fp16(tmp_path), verify=verify, **options))
    assert (tries["onnx fp32"].status, tries["onnx fp16"].status) == ("ok", "wrong") and seen == [[4, 4, True]] * 2
    assert tries["onnx fp16"].reason == "the function `verify` says so"
    tries = by_name(converted(too_large_for_fp16(tmp_path), verify=lambda *_: True, **options))
    assert tries["onnx fp16"].status == "ok"


def served_config(found):
    flags = [f"--model-repository={found.model.parent}", "--http-port=0", "--http-address=127.0.0.1"]
    server = LocalServer([*flags, "--allow-grpc=false", "--allow-metrics=false", "--log-info=false"])
    server.start()
    try:
        with Client(server.http_address) as client:
            model = client.model(found.name)
            yield model.config(), model
    finally:
        server.stop()


def test_rows_that_influence_each_other_are_never_joined(tmp_path):
    found = converted(centred(tmp_path), samples={"x": X}, output=tmp_path / "out", **HERE, precisions=["fp32"])
    assert [each.status for each in found.tries] == ["ok", "ok"] and found.signature.mixes
    (note,) = found.notes
    assert re.search(
        "the rows of a batch influence each other in .*centred.onnx itself: output 'y' of a batch of 4: 32 of 32 "
        "elements.* So it is written without batching", note
    ), note  # fmt: skip
    for config, model in served_config(found):
        assert config["max_batch_size"] == 0 and "dynamic_batching" not in config
        assert np.allclose(model.infer({"x": X}).y, X - X.mean(0), atol=1e-6)
        assert not model.infer({"x": X[:1]}).y.any()


def test_one_sample_does_not_show_whether_rows_may_be_joined(tmp_path):
    found = converted(centred(tmp_path), samples={"x": X[:1]}, targets=["onnx"], precisions=["fp32"])
    assert found.signature.mixes and "no two samples of one shape differ: give more" in found.notes[0]
    found = converted(network(tmp_path), samples={"x": X[:2]}, targets=["onnx"], precisions=["fp32"])
    assert not found.signature.mixes and found.notes == ()


def test_a_batch_is_held_against_its_rows_alone(tmp_path):
    """What the source says of a batch is not what a client of one row wants, where the two differ at all."""
    seen = []
    options = {"samples": {"x": X}, "targets": ["onnx"], "precisions": ["fp32"]}
    converted(network(tmp_path), verify=lambda _, expected: bool(seen.append(expected) or True), **options)
    *rows, batch = (each["y"] for each in seen[0])
    assert np.array_equal(batch, np.concatenate([*rows, rows[0]]))


def test_small_scores_that_vanish_are_refused(tmp_path):
    """FP16 has neither factor, so what is left of them is near 0."""
    found = converted(scores(tmp_path, "vanishing.onnx", 1e-9, 1e9), samples={"x": X}, targets=["onnx"])
    right, wrong = found.tries
    assert (right.status, wrong.status) == ("ok", "wrong"), wrong
    assert wrong.max_absolute < 1e-2 and found.scales["y2"][0] < 1e-2  # one threshold for all would have taken it
    found = converted(scores(tmp_path, "plain.onnx"), samples={"x": X}, targets=["onnx"])
    assert [each.status for each in found.tries] == ["ok", "ok"]


def test_an_output_of_zeros_is_right_and_told(tmp_path):
    found = converted(scores(tmp_path, "nothing.onnx", 0.0), samples={"x": X}, targets=["onnx"])
    assert [(each.status, each.max_absolute, each.max_relative) for each in found.tries] == [("ok", 0.0, 0.0)] * 2
    assert found.notes == ("output 'y1' is 0 for all samples, which tell little of it: others may show more",)


def test_a_function_of_the_users_that_raises_costs_its_row(tmp_path):
    options = {"samples": {"x": X}, "targets": ["onnx"], "precisions": ["fp32"]}
    found = converted(network(tmp_path), verify=lambda found, _: found[0]["z"], **options)
    assert [(each.status, each.reason) for each in found.tries] == [
        ("failed", "the function `verify` raised KeyError: 'z'")
    ]


def test_the_time_of_the_comparison_has_a_bound(tmp_path, monkeypatch):
    clock = itertools.count(step=200)
    monkeypatch.setattr(trial, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    (row,) = converted(network(tmp_path), samples={"x": X}, targets=["onnx"], precisions=["fp32"]).tries
    assert row.status == "failed"
    assert row.reason == "1 of 4 samples were answered in 300 s: give fewer, or more time with --step-seconds"


def test_a_graph_without_ranks_is_a_sentence(tmp_path):
    graph = made.model([made.node("Identity", ["x"], ["y"])], [("x", "FP32", ("n", 8))], [("y", "FP32", ("n", 8))])
    for each in (*graph.graph.input, *graph.graph.output):
        each.type.tensor_type.ClearField("shape")
    with pytest.raises(BadRequest, match=r"does not tell how many dimensions input 'x' has.*\[3, 8\]: export it"):
        converted(save(tmp_path, "free.onnx", graph), samples={"x": X}, **HERE)


def test_clients_are_told_of_dimensions_that_the_source_has_not(tmp_path):
    nodes = [made.node("ReduceSum", ["a", "axes"], ["b"], keepdims=0)]
    axes = made.constant("axes", np.array([1], np.int64))
    graph = made.model(nodes, [("a", "FP32", ("n", 2))], [("b", "FP32", ("n",))], [axes])
    found = converted(save(tmp_path, "sums.onnx", graph), precisions=["fp32"], targets=["onnx"])
    assert "clients see a last dimension of size 1 more than the source has: of b" in found.notes


def test_a_full_output_folder_is_a_sentence(tmp_path, monkeypatch):
    def full(source, target, **_):
        raise shutil.Error([(str(source), str(target), "[Errno 28] No space left on device")])

    monkeypatch.setattr(output.shutil, "copytree", full)
    with pytest.raises(Unavailable) as found:
        converted(network(tmp_path), samples={"x": X}, targets=["onnx"], output=tmp_path / "out")
    said = f"-o {tmp_path / 'out'} could not be written (No space left on device): it needs room for the model"
    assert found.value.message == said


def test_a_first_dimension_that_is_said_to_be_no_batch(tmp_path):
    rows = np.random.default_rng(0).standard_normal((5, 8), np.float32)
    options = {"samples": [{"x": rows}, {"x": rows[:2]}], "targets": ["onnx"], "precisions": ["fp32"]}
    found = converted(network(tmp_path), **options, no_batch=True)
    assert (found.best, found.max_batch_size, found.rows) == (found.tries[0], 0, 2)
    assert not found.signature.batches and found.signature.inputs[0].dims == (-1, 8)
