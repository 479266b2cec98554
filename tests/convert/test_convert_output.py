"""The folder that is written: what a conversion wrote is replaced, what a person made is never lost."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from tests.convert.made_models import converted, network, too_large_for_fp16  # noqa: E402
from tisfast.errors import BadRequest  # noqa: E402

X = np.random.default_rng(1).standard_normal((3, 8), np.float32)
SHORT = {"samples": {"x": X}, "targets": ["onnx"], "precisions": ["fp32"], "concurrency": (1,)}
NET, CONFIG, GRAPH = "net", "net/config.pbtxt", "net/1/model.onnx"


def state(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def written(tmp_path):
    """A folder with a conversion, and its source."""
    source = network(tmp_path)
    assert converted(source, **SHORT, output=tmp_path / "out").model == tmp_path / "out" / "net"
    return source, tmp_path / "out"


def test_what_was_written_is_replaced_also_where_python_has_cached_code(written):
    source, out = written
    (out / NET / "1" / "__pycache__").mkdir()
    (out / NET / "1" / "__pycache__" / "own.cpython-311.pyc").touch()
    os.utime(out / GRAPH, (0, 0))
    assert converted(source, **SHORT, output=out).model == out / NET
    assert (out / GRAPH).stat().st_mtime and not (out / NET / "1" / "__pycache__").exists()
    assert sorted(os.listdir(out)) == ["net", "report.html", "report.json"]


def by_hand(out):
    shutil.rmtree(out / NET)
    (out / NET).mkdir()
    (out / CONFIG).write_text('backend: "python"')


def with_a_copied_mark(out):
    mark = (out / NET / ".tisfast-convert.json").read_bytes()
    by_hand(out)
    (out / NET / ".tisfast-convert.json").write_bytes(mark)


def linked(out):
    (out / NET).rename(out / "elsewhere")
    (out / NET).symlink_to("elsewhere")


def dangling(out):
    shutil.rmtree(out / NET)
    (out / NET).symlink_to("nothing")


def a_file(out):
    shutil.rmtree(out / NET)
    (out / NET).write_text("mine")


def edit(file, text):
    return lambda out: (out / file).write_text(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (by_hand, "tisfast convert has not written it"),
        (with_a_copied_mark, "1/model.onnx was removed since tisfast convert wrote it"),
        (edit(CONFIG, "max_batch_size: 3"), "config.pbtxt was changed since"),
        (edit("net/1/labels.txt", "a"), "1/labels.txt was added since"),
        (lambda out: (out / GRAPH).unlink(), "1/model.onnx was removed since"),
        (lambda out: (out / NET / "2").symlink_to("1"), "2 was added since"),
        (edit("net/.tisfast-convert.json", "[]"), "tisfast convert has not written it"),
        (edit("net/.tisfast-convert.json", '{"schema": "other", "files": {}}'), "tisfast convert has not written it"),
        (linked, "it is no folder that tisfast convert has written"),
        (dangling, "it is no folder that tisfast convert has written"),
        (a_file, "it is no folder that tisfast convert has written"),
    ],
)
def test_what_a_person_has_made_or_changed_is_refused(written, change, said):
    """Although a report of a conversion lies beside it."""
    source, out = written
    change(out)
    before = state(out)
    with pytest.raises(BadRequest, match=f"has 'net' already, and {said}.*move or remove it, or give another --name"):
        converted(source, **SHORT, output=out)
    assert state(out) == before


def test_what_a_person_puts_there_meanwhile_stays(tmp_path):
    def told(text):
        if text.startswith("measured"):
            (tmp_path / "out" / NET).mkdir()
            (tmp_path / "out" / CONFIG).write_text("mine")

    with pytest.raises(BadRequest, match="has 'net' already, and tisfast convert has not written it"):
        converted(network(tmp_path), **SHORT, output=tmp_path / "out", told=told)
    assert os.listdir(tmp_path / "out") == [NET] and (tmp_path / "out" / CONFIG).read_text() == "mine"


def test_one_that_fails_leaves_no_folders(tmp_path):
    (tmp_path / "there").mkdir()
    for output in (tmp_path / "a" / "b" / "c", tmp_path / "there" / "b", tmp_path / "a" / ("b" * 300)):
        with pytest.raises(BadRequest):
            converted(network(tmp_path), **{**SHORT, "samples": {"x": X[:, :7]}}, output=output)
        assert not (tmp_path / "a").exists() and os.listdir(tmp_path / "there") == []


def test_where_nothing_is_right_what_was_written_stays(written):
    _, out = written
    before = (out / GRAPH).read_bytes()
    source = too_large_for_fp16(out.parent)
    found = converted(source, **{**SHORT, "precisions": ["fp16"]}, output=out, name=NET)
    assert found.model is None and "is of an earlier conversion, and stays" in found.notes[0]
    assert (out / GRAPH).read_bytes() == before
