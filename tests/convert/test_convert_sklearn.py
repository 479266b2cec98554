"""Estimators of scikit-learn as they are, in ONNX, and as forests of treelite."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("treelite")
pytest.importorskip("skl2onnx")

import joblib  # noqa: E402 - they are there
import skops.io  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from tests.convert.made_models import by_name, converted  # noqa: E402
from tisfast.convert.signature import Tensor  # noqa: E402
from tisfast.errors import BadRequest  # noqa: E402

RANDOM = np.random.default_rng(2)
X = RANDOM.standard_normal((60, 5)).astype(np.float32)
CLASSES = (X[:, 0] + X[:, 1] > 0).astype(int)
SHORT = {"seconds": 0.1, "concurrency": (1,), "samples": {"X": X[:6]}, "precisions": ["fp32"]}


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
    assert tries["treelite fp32"].note == "clients ask it for input__0 (X), output__0 (predict_proba)"
    assert found.signature.inputs == (Tensor("X", "FP32", (-1, 5)),)
    assert [each.name for each in found.signature.outputs] == ["predict", "predict_proba"]


def test_a_pipeline_and_a_regressor(tmp_path):
    joblib.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, CLASSES), tmp_path / "pipe.joblib")
    tries = by_name(converted(tmp_path / "pipe.joblib", **SHORT, allow_pickled=True))
    assert [each.status for each in tries.values()] == ["ok", "ok", "failed"]
    assert "Not supported model type: Pipeline" in tries["treelite fp32"].reason
    joblib.dump(RandomForestRegressor(5, random_state=0).fit(X, X[:, 0] * 3), tmp_path / "values.joblib")
    found = converted(tmp_path / "values.joblib", **{**SHORT, "samples": None}, allow_pickled=True)
    assert [each.status for each in found.tries] == ["ok"] * 3 and found.drawn


def test_tables_of_several_kinds_are_not_converted(tmp_path):
    columns = ColumnTransformer([("numbers", StandardScaler(), [0, 1])])
    joblib.dump(make_pipeline(columns, LogisticRegression()).fit(X, CLASSES), tmp_path / "columns.joblib")
    with pytest.raises(BadRequest, match="one table of numbers.*served as they are"):
        converted(
            tmp_path / "columns.joblib", **{**SHORT, "samples": {"a": X[:, :1], "b": X[:, 1:]}}, allow_pickled=True
        )
    joblib.dump({"a": 1}, tmp_path / "no_model.joblib")
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
