"""Estimators of scikit-learn as they are, in ONNX, and as forests of treelite."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("treelite")
pytest.importorskip("skl2onnx")

import joblib  # noqa: E402 - they are there
import pandas  # noqa: E402
import skops.io  # noqa: E402
from sklearn.cluster import KMeans  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    GradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer  # noqa: E402
from sklearn.linear_model import LogisticRegression, SGDClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402
from sklearn.svm import LinearSVC  # noqa: E402

from tests.convert.made_models import asked_of, by_name, converted  # noqa: E402
from tisfast.convert.signature import Tensor  # noqa: E402
from tisfast.errors import BadRequest  # noqa: E402

RANDOM = np.random.default_rng(2)
X = RANDOM.standard_normal((60, 5)).astype(np.float32)
CLASSES = (X[:, 0] + X[:, 1] > 0).astype(int)
SHORT = {"samples": {"X": X[:6]}, "precisions": ["fp32"]}


def test_a_forest_is_served_in_three_ways(tmp_path):
    skops.io.dump(RandomForestClassifier(5, random_state=0).fit(X, CLASSES), tmp_path / "forest.skops")
    with pytest.raises(BadRequest, match="types that skops does not know.*--allow-pickled-models"):
        converted(tmp_path / "forest.skops", **SHORT)
    found = converted(tmp_path / "forest.skops", **SHORT, allow_pickled=True, output=tmp_path / "out")
    tries = by_name(found)
    assert {name: (each.status, each.reason) for name, each in tries.items()} == {
        f"{name} fp32": ("ok", "") for name in ("sklearn", "onnx", "treelite")
    }
    assert tries["sklearn fp32"].max_absolute == 0 and tries["sklearn fp32"].note == ""
    assert tries["treelite fp32"].note == (
        "clients ask it for input__0 (X), output__0 (predict_proba); it does not answer predict"
    )
    assert found.signature.inputs == (Tensor("X", "FP32", (-1, 5)),)
    assert [each.name for each in found.signature.outputs] == ["predict", "predict_proba"]


def test_a_pipeline_and_a_regressor(tmp_path):
    joblib.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, CLASSES), tmp_path / "pipe.joblib")
    tries = by_name(converted(tmp_path / "pipe.joblib", **SHORT, allow_pickled=True))
    assert [each.status for each in tries.values()] == ["ok", "ok", "failed"]
    assert tries["treelite fp32"].reason == "treelite takes forests of scikit-learn alone, and this is a Pipeline"
    joblib.dump(RandomForestRegressor(5, random_state=0).fit(X, X[:, 0] * 3), tmp_path / "values.joblib")
    found = converted(tmp_path / "values.joblib", **{**SHORT, "samples": None}, allow_pickled=True)
    assert [each.status for each in found.tries] == ["ok"] * 3 and found.drawn


def frame_pipeline():
    numbers = ["age", "visits"]
    steps = [("numbers", StandardScaler(), numbers), ("words", OneHotEncoder(handle_unknown="ignore"), ["city"])]
    frame = pandas.DataFrame(COLUMNS)
    return make_pipeline(
        ColumnTransformer([*steps, ("as it is", "passthrough", ["member"])]), LogisticRegression()
    ).fit(frame, CLASSES)


CITIES = np.array(["Oslo", "Bergen", "Tromsø"], object)
COLUMNS = {
    "age": X[:, 0].astype(np.float64) * 10 + 40,
    "city": CITIES[(X[:, 1] * 2).astype(int) % 3],
    "visits": (X[:, 2] * 5).astype(np.int64),
    "member": X[:, 3] > 0,
}


SLUGGISH = """
import threading
class Sluggish:
    n_features_in_ = 5
    def predict(self, table):
        threading.Event().wait(0.35)
        return table[:, :1] * 2
"""


def test_one_that_is_slower_than_a_load_is_measured_and_chosen(tmp_path, monkeypatch):
    """Its request in flight at the end is waited for.  And a folder called as a module goes along with nothing."""
    monkeypatch.setattr("tisfast.limits.BENCH_DRAIN_SECONDS_MAX", 0.01)
    (tmp_path / "sluggish.py").write_text(SLUGGISH)
    (tmp_path / "folder.py").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    joblib.dump(importlib.import_module("sluggish").Sluggish(), tmp_path / "slow.joblib")
    options = {**SHORT, "samples": {"X": X[:1]}, "targets": ["sklearn"], "max_batch_size": 1}
    (only,) = converted(tmp_path / "slow.joblib", **options, allow_pickled=True).tries
    assert (only.status, only.reason) == ("ok", "")
    assert [level.requests > 0 for level in only.measured] == [True]


STUCK = """
import random, threading, time
class Stuck:
    n_features_in_, first, last = 5, 0.0, 0.0
    def predict(self, table):
        now = time.monotonic()
        if now - self.last > 0.5:
            self.first = now  # of calls one behind the other
        self.last = now
        uneven = random.choice((0.001, 0.05))  # so that it is measured for as long as it may
        threading.Event().wait(uneven if now - self.first < 1.0 else None)
        return table[:, :1] * 2
"""


def test_one_that_hangs_under_load_has_failed(tmp_path, monkeypatch):
    """It is waited for as long as it may take, and longer."""
    monkeypatch.setattr("tisfast.limits.BENCH_DRAIN_SECONDS_MAX", 1.0)
    (tmp_path / "stuck.py").write_text(STUCK)
    monkeypatch.syspath_prepend(str(tmp_path))
    joblib.dump(importlib.import_module("stuck").Stuck(), tmp_path / "stuck.joblib")
    options = {**SHORT, "seconds": 0.3, "samples": {"X": X[:2]}, "targets": ["sklearn"], "max_batch_size": 1}
    found = converted(tmp_path / "stuck.joblib", **options, allow_pickled=True)
    (only,) = found.tries
    assert only.status == "failed" and found.best is None
    assert re.search(r"^(1 of \d+ requests failed|nothing was answered) with 1 .*: no answer within ", only.reason)


def test_an_estimator_of_another_library_is_named(tmp_path):
    """And not the advice that converters have for their own developers."""
    lightgbm = pytest.importorskip("lightgbm")
    made = lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(X, X[:, 0])
    joblib.dump(made, tmp_path / "light.joblib")
    tries = by_name(converted(tmp_path / "light.joblib", **SHORT, allow_pickled=True))
    assert tries["treelite fp32"].reason.endswith("forests of scikit-learn alone, and this is a LGBMRegressor")
    reason = tries["onnx fp32"].reason
    assert reason.startswith("skl2onnx does not know all parts of this LGBMRegressor: ") and len(reason) < 200, reason


@pytest.mark.parametrize("content", [b"", b"text", bytes(range(200, 250))])
def test_what_joblib_does_not_read_is_a_sentence(tmp_path, content):
    (tmp_path / "a.joblib").write_bytes(content)
    with pytest.raises(BadRequest, match=r"a.joblib cannot be read by joblib \(\w+: .*\): it is damaged, no file"):
        converted(tmp_path / "a.joblib", **SHORT, allow_pickled=True)


def test_columns_of_several_kinds_have_an_input_each(tmp_path):
    pipeline = frame_pipeline()
    joblib.dump(pipeline, tmp_path / "customers.joblib")
    samples = {name: array[:6] for name, array in COLUMNS.items()}
    found = converted(
        tmp_path / "customers.joblib", **{**SHORT, "samples": samples}, allow_pickled=True, output=tmp_path / "out"
    )
    tries = by_name(found)
    assert (tries["sklearn fp32"].status, tries["sklearn fp32"].reason) == ("ok", "")
    assert (tries["onnx fp32"].status, tries["onnx fp32"].reason) == ("ok", "")
    assert tries["treelite fp32"].status == "failed" and "an input for each column" in tries["treelite fp32"].reason
    kinds = [("age", "FP64"), ("city", "BYTES"), ("visits", "INT64"), ("member", "BOOL")]
    assert found.signature.inputs == tuple(Tensor(name, kind, (-1, 1)) for name, kind in kinds)
    answer = asked_of(
        tmp_path / "out", "customers", {name: array[:4].reshape(-1, 1) for name, array in COLUMNS.items()}
    )
    wanted = pipeline.predict_proba(pandas.DataFrame(samples).head(4))
    assert np.allclose(answer["predict_proba"], wanted, atol=1e-5)


def test_columns_without_names_are_numbered(tmp_path):
    steps = [("numbers", StandardScaler(), [0]), ("words", OneHotEncoder(handle_unknown="ignore"), [1])]
    table = np.column_stack([COLUMNS["age"].astype(object), COLUMNS["city"]])
    joblib.dump(ColumnTransformer(steps).fit(table), tmp_path / "plain.joblib")
    samples = {"X0": COLUMNS["age"][:6], "X1": COLUMNS["city"][:6]}
    found = converted(
        tmp_path / "plain.joblib", **{**SHORT, "samples": samples}, allow_pickled=True, targets=["sklearn", "onnx"]
    )
    assert [(each.status, each.reason) for each in found.tries] == [("ok", "")] * 2


def test_samples_that_are_no_table_and_no_columns_are_refused(tmp_path):
    joblib.dump(frame_pipeline(), tmp_path / "customers.joblib")
    joblib.dump({"a": 1}, tmp_path / "no_model.joblib")
    columns = {name: array[:6] for name, array in COLUMNS.items()}
    for samples, said in [
        (
            {"age": X[:, 0], "city": X[:, 1]},
            "arrays age, city, and the estimator was fitted on the columns age, city, v",
        ),
        ({**columns, "age": X[:6, :2]}, r"'age' is shaped \[6, 2\], and a column is \[rows, 1\]"),
        (
            {"X": COLUMNS["city"][:6].reshape(-1, 1)},
            "'X' is object .*one table of numbers, .* or one array for each column",
        ),
        (None, "treated in several ways.*give --samples"),
    ]:
        with pytest.raises(BadRequest, match=said):
            converted(tmp_path / "customers.joblib", **{**SHORT, "samples": samples}, allow_pickled=True)
    with pytest.raises(BadRequest, match="holds a dict, without any of predict"):
        converted(tmp_path / "no_model.joblib", **SHORT, allow_pickled=True)


def test_modules_beside_the_file_go_along(tmp_path):
    """What the estimator is made of lies there, and nowhere else."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "doubling_of_columns.py").write_text("def double(table):\n    return table * 2\n")
    program = (
        "import joblib, numpy, doubling_of_columns as own\n"
        "from sklearn.preprocessing import FunctionTransformer as Made\n"
        "joblib.dump(Made(own.double).fit(numpy.ones((2, 5), numpy.float32)), 'own.joblib')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
    found = converted(folder / "own.joblib", **SHORT, allow_pickled=True, targets=["sklearn"], output=tmp_path / "out")
    assert (found.tries[0].status, found.tries[0].reason) == ("ok", "")
    assert (found.model / "1" / "doubling_of_columns.py").is_file()


def test_a_format_that_fails_under_load_is_no_winner(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "tiring_of_calls.py").write_text(
        "calls = 0\n"
        "def double(table):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls > 20 and calls % 3 == 0:\n"
        "        raise ValueError('too tired')\n"
        "    return table * 2\n"
    )
    program = (
        "import joblib, numpy, tiring_of_calls as own\n"
        "from sklearn.preprocessing import FunctionTransformer as Made\n"
        "joblib.dump(Made(own.double).fit(numpy.ones((2, 5), numpy.float32)), 'own.joblib')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
    found = converted(folder / "own.joblib", **SHORT, allow_pickled=True, targets=["sklearn"])
    (row,) = found.tries
    assert row.status == "failed" and found.best is None
    assert re.search(r"^\d+ of \d+ requests failed with 1 at one time: .*too tired", row.reason), row.reason
    assert row.max_absolute == 0 and row.measured[0].errors > 0


def test_without_samples_an_estimator_gets_the_type_that_it_takes(tmp_path):
    """This one takes nothing but what it was fitted on."""
    table = np.random.default_rng(0).standard_normal((40, 3))
    joblib.dump(KMeans(2, n_init=1).fit(table), tmp_path / "groups.joblib")
    found = converted(tmp_path / "groups.joblib", allow_pickled=True, targets=["sklearn"])
    assert found.signature.inputs == (Tensor("X", "FP64", (-1, 3)),) and found.drawn
    assert [(each.status, each.reason) for each in found.tries] == [("ok", "")]


def test_what_fp16_does_not_know_is_a_sentence(tmp_path):
    model = GradientBoostingRegressor(n_estimators=3).fit(X, X[:, 0])
    joblib.dump(model, tmp_path / "boosted.joblib")
    found = converted(tmp_path / "boosted.joblib", allow_pickled=True, targets=["onnx"])
    single, half = found.tries
    assert single.status == "ok" and (half.status == "ok" or "into FP16 does not know all operators" in half.reason)


@pytest.mark.parametrize("precisions", [["fp32", "fp16"], ["fp16"]])
def test_fp16_is_made_of_the_graph_in_fp32(tmp_path, precisions):
    """The estimator is read to ask itself, and to make fp32 of it, whether that is asked for or not."""
    folder = tmp_path / "mine"
    folder.mkdir()
    log = folder / "reads"
    (folder / "telling_of_reads.py").write_text(
        f"class Note:\n    pass\nwith open({str(log)!r}, 'a') as file:\n    file.write('x')\n"
    )
    program = (
        "import joblib, numpy, telling_of_reads\n"
        "from sklearn.preprocessing import StandardScaler\n"
        "made = StandardScaler().fit(numpy.eye(5, dtype=numpy.float32))\n"
        "made.note = telling_of_reads.Note()\n"
        "joblib.dump(made, 'own.joblib')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
    log.unlink()
    found = converted(
        folder / "own.joblib", **{**SHORT, "precisions": precisions}, allow_pickled=True, targets=["onnx"]
    )
    assert [(each.precision, each.status, each.reason) for each in found.tries] == [
        (each, "ok", "") for each in precisions
    ]
    assert log.read_text() == "xx"


@pytest.mark.parametrize(
    ("made", "note"),
    [
        (LinearSVC(), ""),
        (SGDClassifier(random_state=0), ""),
        (IsolationForest(n_estimators=5, random_state=0), ""),
        (LinearDiscriminantAnalysis(), "it does not answer transform"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_graphs_with_more_or_fewer_outputs_than_methods(tmp_path, made, note):
    three = CLASSES + (X[:, 2] > 1)  # of two, skl2onnx makes other probabilities of the last estimator
    joblib.dump(made.fit(X, three), tmp_path / "made.joblib")
    found = converted(tmp_path / "made.joblib", **SHORT, allow_pickled=True, targets=["onnx"])
    assert [(each.status, each.reason, each.note) for each in found.tries] == [("ok", "", note)]


SAYS = ["good film", "bad film", "Good PLOT", "awful MESS", "nice acting", "worst ever"] * 4
LIKED = [1, 0, 1, 0, 1, 0] * 4


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
def test_an_estimator_of_texts_gets_one_for_each_row(tmp_path, shape):
    pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(SAYS, LIKED)
    joblib.dump(pipeline, tmp_path / "opinions.joblib")
    samples = {"X": np.array([*SAYS[:5], "mess unseen"]).reshape(shape)}
    found = converted(
        tmp_path / "opinions.joblib", **{**SHORT, "samples": samples}, allow_pickled=True, output=tmp_path / "out"
    )
    tries = by_name(found)
    assert (tries["sklearn fp32"].status, tries["sklearn fp32"].reason) == ("ok", "")
    assert (tries["onnx fp32"].status, tries["onnx fp32"].reason) == ("ok", "")
    assert tries["treelite fp32"].status == "failed"
    assert found.signature.inputs == (Tensor("X", "BYTES", (-1, 1)),) and found.signature.joined
    asked = ["bad awful mess", "nice"]
    answer = asked_of(tmp_path / "out", "opinions", {"X": np.array(asked, object).reshape(-1, 1)})
    assert np.allclose(answer["predict_proba"], pipeline.predict_proba(asked), atol=1e-5)


def test_texts_that_skl2onnx_does_not_know_are_served_as_they_are(tmp_path):
    pipeline = make_pipeline(HashingVectorizer(n_features=16), LogisticRegression()).fit(SAYS, LIKED)
    joblib.dump(pipeline, tmp_path / "hashed.joblib")
    options = {**SHORT, "samples": {"X": np.array(SAYS[:6])}, "targets": ["sklearn", "onnx"]}
    plain, graph = converted(tmp_path / "hashed.joblib", **options, allow_pickled=True).tries
    assert (plain.status, plain.reason, graph.status) == ("ok", "", "failed")
    assert "HashingVectorizer" in graph.reason
    for samples, said in [
        (
            {"X": X[:6]},
            r"the samples have 'X' float32 \[6, 5\], and this Pipeline reads a list of texts: give one array",
        ),
        ({"X": np.array(SAYS[:6]).reshape(3, 2)}, r"'X' <U11 \[3, 2\], and this Pipeline reads a list of texts"),
        ({"a": np.array(SAYS[:6]), "b": X[:6, 0]}, "'a' .*, 'b' .*, and this Pipeline reads a list of texts"),
        (None, "reads texts: give --samples FILE.npz, one array of str"),
    ]:
        with pytest.raises(BadRequest, match=said):
            converted(tmp_path / "hashed.joblib", **{**options, "samples": samples}, allow_pickled=True)


def test_an_estimator_of_this_program_is_converted(tmp_path):
    found = converted(LogisticRegression().fit(X, CLASSES), **SHORT, targets=["sklearn"], output=tmp_path / "out")
    assert [(each.status, each.reason, each.max_absolute < 1e-6) for each in found.tries] == [("ok", "", True)]
    assert found.name == "LogisticRegression" and found.source == "the estimator LogisticRegression"
    assert [each.name for each in (found.model / "1").iterdir()] == ["model.joblib"]
    with pytest.raises(BadRequest, match="--no-batch: the estimator KMeans takes a table, whose rows are a batch"):
        converted(KMeans(2, n_init=1).fit(X), **SHORT, no_batch=True)


OWN = """
from sklearn.base import BaseEstimator

from own_numbers import FACTOR


class Tripled(BaseEstimator):
    def predict(self, table):
        return table[:, 0] * FACTOR
"""


def test_modules_beside_the_users_program_go_along(tmp_path, monkeypatch):
    """What is written is served by a process that knows nothing of that program."""
    folder = tmp_path / "program"
    (folder / "own_estimators" / "deep").mkdir(parents=True)
    (folder / "own_estimators" / "__init__.py").write_text("")
    (folder / "own_estimators" / "deep" / "tripled.py").write_text(OWN)
    (folder / "own_numbers.py").write_text("FACTOR = 3\n")
    (folder / "own_other.py").write_text("")
    monkeypatch.syspath_prepend(folder)
    estimator = importlib.import_module("own_estimators.deep.tripled").Tripled()
    found = converted(estimator, **SHORT, targets=["sklearn"], output=tmp_path / "out")
    assert [(each.status, each.reason) for each in found.tries] == [("ok", "")]
    version = found.model / "1"
    assert {str(each.relative_to(version)) for each in version.rglob("*.py")} == {
        "own_numbers.py", "own_estimators/__init__.py", "own_estimators/deep/tripled.py",
    }  # fmt: skip
    assert np.array_equal(asked_of(tmp_path / "out", "Tripled", {"X": X[:2]})["predict"][:, 0], X[:2, 0] * 3)
    sys.path.remove(str(folder))
    said = "the estimator Tripled needs the module 'own_estimators', which only this program has: put it into a file"
    with pytest.raises(BadRequest, match=said):
        converted(estimator, **SHORT)


def test_graphs_of_trees_that_take_no_fp64_say_so(tmp_path):
    joblib.dump(GradientBoostingRegressor(n_estimators=3).fit(X, X[:, 0]), tmp_path / "boosted.joblib")
    options = {**SHORT, "samples": {"X": X[:6].astype(np.float64)}, "targets": ["onnx"]}
    (only,) = converted(tmp_path / "boosted.joblib", **options, allow_pickled=True).tries
    assert only.status == "failed" and "for FP64, as parts of it answer FP32 alone" in only.reason
    assert "give its samples as FP32, X.astype('f4')" in only.reason
