"""What can be a source, and what its formats need."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from tests.convert.made_models import converted
from tisfast.convert.formats import FORMATS, PIP, PRECISIONS, REFERENCES, ROUTES, routes_of
from tisfast.convert.source import read_source
from tisfast.errors import BadRequest, Unavailable


@pytest.mark.parametrize(
    ("file", "kind"), [("a.onnx", "onnx"), ("a.pt", "torchscript"), ("a.pt2", "pt2"), ("a.joblib", "sklearn")]
)
def test_the_kind_is_told_by_the_name(tmp_path, file, kind):
    (tmp_path / file).touch()
    found = read_source(tmp_path / file, allow_pickled=True)
    assert (found.kind, found.name, found.path) == (kind, "a", tmp_path / file)


@pytest.mark.parametrize("file", ["a.pt", "a.pt2", "a.joblib", "a.pkl"])
def test_files_that_can_run_code_are_read_when_that_is_allowed(tmp_path, file):
    (tmp_path / file).touch()
    with pytest.raises(BadRequest, match=f"{file} can run code when it is read.*--allow-pickled-models"):
        read_source(tmp_path / file, allow_pickled=False)
    (tmp_path / "a.skops").touch()
    assert read_source(tmp_path / "a.skops", allow_pickled=False).kind == "sklearn"


def test_a_factory_is_named_by_its_module_or_file(tmp_path):
    found = read_source("pack.age:make", allow_pickled=False)
    assert (found.kind, found.text, found.name) == ("module", "pack.age:make", "make")
    (tmp_path / "mine.py").touch()
    assert read_source(f"{tmp_path}/mine.py:make", allow_pickled=False).kind == "module"
    for text, said in [
        (f"{tmp_path}/nix.py:make", "there is no file"),
        ("nix.onnx", "there is no such file"),
        ("a:b-c", "there is no such file"),
        (f"{tmp_path}/mine.py:", "mine.py:: '' is no name in .*mine.py: write FILE.py:FACTORY"),
        (f"{tmp_path}/mine.py:CNN.x", "'CNN.x' is no name in .*mine.py: write FILE.py:FACTORY"),
        (7, "not int"),
    ]:
        with pytest.raises(BadRequest, match=said):
            read_source(text, allow_pickled=False)


def test_other_models_are_refused_by_name(tmp_path):
    (tmp_path / "model.py").touch()
    with pytest.raises(BadRequest, match="is a model of backend 'python', which tisfast convert does not take"):
        read_source(tmp_path / "model.py", allow_pickled=True)


def test_all_that_is_needed_can_be_installed():
    for kind, routes in ROUTES.items():
        needed = {
            *REFERENCES[kind][1],
            *(name for each in routes for name in (*each.needs, *FORMATS[each.format].needs)),
        }
        assert needed <= set(PIP)
        names = [(each.format, each.precision) for each in routes]
        assert len(set(names)) == len(names) and {each.precision for each in routes} <= set(PRECISIONS)
        for each in routes:  # a step that is there
            module, _, function = each.step.rpartition(".")
            assert callable(getattr(importlib.import_module(module), function))


def test_one_name_stands_for_both_ways_to_torchscript():
    found = routes_of("module", ["torchscript"], PRECISIONS)
    assert [each.format for each in found] == ["torchscript", "torchscript-script"]
    with pytest.raises(BadRequest, match="--target pt2: a graph of ONNX is not made into it"):
        routes_of("onnx", ["pt2"], PRECISIONS)
    with pytest.raises(BadRequest, match="--target pt2: a module of PyTorch is not made into it with --precision fp16"):
        routes_of("module", ["pt2"], ["fp16"])


def test_without_the_framework_the_source_names_the_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match=r"the source needs torch, which this Python does not have.*tisfast\[torch\]"):
        converted("pack.age:make", samples={"x": [[1.0]]})


def test_a_file_of_another_kind_is_told_what_is_taken(tmp_path):
    for name in ("net.csv", "net"):
        (tmp_path / name).touch()
        with pytest.raises(BadRequest, match=f"{name} is no model that tisfast convert takes; it takes ONNX"):
            read_source(tmp_path / name, allow_pickled=True)
