"""The folder that is written: what a conversion wrote is replaced, what a person made is never lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from tests.convert.made_models import converted, network, too_large_for_fp16  # noqa: E402
from tisfast.convert import Interrupted  # noqa: E402
from tisfast.convert.output import write_model_folder  # noqa: E402
from tisfast.errors import BadRequest  # noqa: E402
from tisfast.local_server import ROOT  # noqa: E402

X = np.random.default_rng(1).standard_normal((3, 8), np.float32)
SHORT = {"samples": {"x": X}, "targets": ["onnx"], "precisions": ["fp32"]}
NET, CONFIG, GRAPH = "net", "net/config.pbtxt", "net/1/model.onnx"


def state(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def written_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    assert converted(network(folder), **SHORT, output=folder / "out").model == folder / "out" / "net"
    return folder


@pytest.fixture
def written(tmp_path, written_once):
    """A folder with a conversion, and its source: a copy for each test, which changes it."""
    shutil.copytree(written_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "net.onnx", tmp_path / "out"


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


def noted(out):
    (out / NET / "__pycache__").mkdir()
    (out / NET / "__pycache__" / "notes.txt").write_text("mine")


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
        (lambda out: (out / NET / "2").mkdir(), "2 was added since"),
        (noted, "__pycache__/notes.txt was added since"),
        (lambda out: os.mkfifo(out / NET / "pipe"), "pipe was added since"),
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


def report_of_a_person(out):
    (out / "report.json").write_text('{"my": "test results"}')


def page_of_a_person(out):
    (out / "report.json").unlink()


def linked_report(out):
    (out / "report.json").rename(out / "elsewhere")
    (out / "report.json").symlink_to("elsewhere")


def linked_page(out):
    (out / "report.html").rename(out / "elsewhere")
    (out / "report.html").symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (report_of_a_person, "report.json already, which tisfast convert has not written: it"),
        (
            page_of_a_person,
            "report.html already, which .*, as no report.json of its own lies beside it:",
        ),
        (linked_report, "report.json already, which tisfast convert has not written: it"),
        (linked_page, "report.html already, which tisfast convert has not written: it"),
    ],
)
def test_reports_of_a_person_are_refused_at_the_start(written, change, said):
    source, out = written
    change(out)
    before, seen = state(out), []
    with pytest.raises(BadRequest, match=f"has {said}.* is not replaced; move or remove it, or give another -o"):
        converted(source, **SHORT, output=out, told=seen.append)
    assert state(out) == before and seen == []


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_report_that_a_person_puts_there_meanwhile_stays(tmp_path, precision):
    """Where a model is written, and where none is right."""

    def told(text):
        if text.startswith("onnx"):
            (tmp_path / "out" / "report.html").write_text("mine")

    with pytest.raises(BadRequest, match="has report.html already, which tisfast convert has not written"):
        converted(
            too_large_for_fp16(tmp_path), **{**SHORT, "precisions": [precision]}, output=tmp_path / "out", told=told
        )
    assert os.listdir(tmp_path / "out") == ["report.html"] and (tmp_path / "out" / "report.html").read_text() == "mine"


def test_a_source_in_what_would_be_replaced_is_refused(written):
    _, out = written
    before = state(out)
    (out.parent / "link").symlink_to(out)
    for source in (out / GRAPH, out.parent / "link" / GRAPH):
        with pytest.raises(BadRequest, match="would replace 'net' there, in which the source .* lies: give another"):
            converted(source, **SHORT, output=out, name=NET)
    assert state(out) == before
    assert converted(out / GRAPH, **SHORT, output=out, name="other").model == out / "other"


def test_a_model_is_not_called_as_the_report(tmp_path):
    for name in ("report.json", "report.html"):
        with pytest.raises(BadRequest, match=f"the model would be called '{name}', which is the report's name"):
            converted(network(tmp_path), **SHORT, output=tmp_path / "out", name=name)
    assert not (tmp_path / "out").exists()


def test_a_model_of_many_files_is_replaced_as_others(tmp_path, monkeypatch):
    (tmp_path / "made" / "1").mkdir(parents=True)
    for at in range(3500):  # of long names: a mark of more than 1 MB
        (tmp_path / "made" / "1" / f"{at:0240}").touch()
    for _ in range(2):
        write_model_folder(tmp_path / "made", tmp_path / "out" / NET)
    monkeypatch.setattr("tisfast.convert.output.MARK_BYTES_MAX", 1 << 20)
    with pytest.raises(BadRequest, match="the model has 3500 files, and .* would have .* bytes, more than 1048576"):
        write_model_folder(tmp_path / "made", tmp_path / "out" / "other")
    assert os.listdir(tmp_path / "out") == [NET]


def test_ctrl_c_while_reports_are_written_is_heard_behind_them(tmp_path):
    """What is told is what was written."""

    def told(text):
        if text.startswith("writing"):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(Interrupted) as caught:
            converted(network(tmp_path), **SHORT, output=tmp_path / "out", told=told)
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.value.found.model == tmp_path / "out" / NET and caught.value.found.best.name == "onnx fp32"
    assert sorted(os.listdir(tmp_path / "out")) == ["net", "report.html", "report.json"]


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


def save_labels(out):
    (out / NET / "1" / "labels.txt").write_text("cat")


def save_weights(out):
    """As many bytes."""
    (out / GRAPH).write_text("WEIGHTS")


def replace_all(out):
    shutil.rmtree(out / NET)
    by_hand_in(out)


def by_hand_in(out):
    (out / NET).mkdir()
    (out / CONFIG).write_text("mine")


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (save_labels, "1/labels.txt was added since tisfast convert wrote it"),
        (save_weights, "1/model.onnx was changed since tisfast convert wrote it"),
        (replace_all, "tisfast convert has not written it"),
    ],
)
def test_what_a_person_saves_behind_the_last_look_is_put_back(tmp_path, monkeypatch, change, said, exchanges):
    """The model that was there is looked at before it is moved, and again behind that."""
    made, out = tmp_path / "made", tmp_path / "out"
    (made / "1").mkdir(parents=True)
    (made / "1" / "model.onnx").write_text("weights")
    write_model_folder(made, out / NET)
    if not exchanges:
        monkeypatch.setattr("tisfast.repo.written_folder.exchanged", lambda *_: False)  # a file system that cannot
    seen = []

    def saved():
        change(out)
        seen.append(state(out / NET))

    with pytest.raises(BadRequest, match=f"has 'net' already, and {said}"):
        write_model_folder(made, out / NET, saved)
    assert [state(out / NET)] == seen and os.listdir(out) == [NET]


def test_a_folder_that_a_person_makes_behind_the_last_look_is_put_back(tmp_path):
    made, out = tmp_path / "made", tmp_path / "out"
    (made / "1").mkdir(parents=True)
    out.mkdir()
    with pytest.raises(BadRequest, match="has 'net' already, and tisfast convert has not written it"):
        write_model_folder(made, out / NET, lambda: by_hand_in(out))
    assert (out / CONFIG).read_text() == "mine" and os.listdir(out) == [NET]


KILLED = """
import os, signal, sys
from pathlib import Path
from tisfast.convert.output import MARK, write_model_folder

def ended(event, arguments):
    # The second look, at what has a hidden name.
    if event == "open" and str(arguments[0]).endswith(MARK) and "/.net." in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)

def saved():
    (out / "1" / "labels.txt").write_text("cat")
    sys.addaudithook(ended)

made, out = map(Path, sys.argv[1:])
write_model_folder(made, out, saved)
"""


def test_one_that_is_killed_in_between_loses_nothing_and_the_next_one_tells(written):
    source, out = written
    command = [sys.executable, "-c", KILLED, str(out / NET), str(out / NET)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    found = converted(source, **SHORT, output=out)
    (labels,) = out.glob(".net.*/1/labels.txt")
    assert labels.read_text() == "cat" and found.model == out / NET
    hidden = labels.parents[1]
    assert f"{hidden} is of a conversion that was killed or still runs" in " ".join(found.notes)


FULL = """
import resource, sys
from pathlib import Path
from tisfast.convert import output
from tisfast.convert.output import why, write_model_folder
made, out = map(Path, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # as a disk that has no more room
try:
    write_model_folder(made, out)
except OSError as error:
    print(why(error))
"""


def test_a_full_disk_is_told_without_names_of_hidden_folders(tmp_path):
    (tmp_path / "made" / "1").mkdir(parents=True)
    (tmp_path / "made" / "1" / "model.onnx").write_bytes(b"w" * 2000)
    command = [sys.executable, "-c", FULL, str(tmp_path / "made"), str(tmp_path / "out" / NET)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout == "File too large\n" and os.listdir(tmp_path / "out") == [], ran.stderr
