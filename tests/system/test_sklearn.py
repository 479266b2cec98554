"""Estimators and pipelines of scikit-learn, served by backend `sklearn`: docs/sklearn.md."""

from __future__ import annotations

import pickle
import signal
import sys
import types
from contextlib import contextmanager
from functools import cache

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

skops_io = pytest.importorskip("skops.io", reason="skops has no wheel for this interpreter")
pandas = pytest.importorskip("pandas", reason="pandas has no wheel for this interpreter")

import joblib  # noqa: E402 - comes with scikit-learn
import sklearn  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.ensemble import RandomForestClassifier  # noqa: E402
from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402

from tests.system.array_calls import (  # noqa: E402
    UNREADY,
    config_of,
    executions,
    infer,
    infer_each,
    reason_of,
)
from tests.system.helpers import until  # noqa: E402

SKLEARN = 'backend: "sklearn"\n'
OWN = """
import numpy as np
from sklearn.base import BaseEstimator

class Halves(BaseEstimator):
    n_features_in_ = 2
    def fit(self, X, y=None):
        return self
    def predict(self, X):
        return X[:, 0] / 2
    def predict_proba(self, X):
        if X[0, 0]:
            raise ValueError("nobody may ask for this")
        return X
"""


@cache
def digits():
    return load_digits(return_X_y=True)


@cache
def people():
    chance = np.random.default_rng(5)
    frame = pandas.DataFrame(
        {
            "age": chance.integers(18, 80, 300).astype(float),
            "city": chance.choice(["Rome", "Oslo", "Łódź"], 300),
            "member": chance.choice([True, False], 300),
        }
    )
    return frame, np.where((frame["age"] > 40) ^ (frame["city"] == "Oslo"), "buys", "leaves")


@cache
def mixed(unknown="error"):
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = [("numbers", numbers, ["age"]), ("words", OneHotEncoder(handle_unknown=unknown), ["city", "member"])]
    return make_pipeline(ColumnTransformer(columns), LogisticRegression()).fit(*people())


@cache
def texts():
    says = ["a cat sat down", "the dog ran away", "cats and cats", "dogs bark", "my cat", "a big dog"]
    return make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(says, ["cat", "dog", "cat", "dog", "cat", "dog"])


@cache
def linear():
    return LogisticRegression(max_iter=1000).fit(digits()[0] / 16, digits()[1])


@pytest.fixture
def write(tmp_path):
    """Write a model into the test's repository, by joblib or, after its name, by skops."""

    def written(name, model, config="", file="model.joblib"):
        folder = tmp_path / "models" / name / "1"
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(model, bytes):
            (folder / file).write_bytes(model)
        else:
            (skops_io if file.endswith(".skops") else joblib).dump(model, folder / file)
        if config:
            (folder.parent / "config.pbtxt").write_text(SKLEARN + config)
        return folder / file

    return written


def columns_of(config, role):
    return [(each["name"], each["data_type"], each["dims"]) for each in config[role]]


def test_a_folder_with_nothing_but_a_model_is_served(serve, write, connect):
    write("digits", linear())
    write("forest", RandomForestClassifier(10, n_jobs=-1, random_state=1).fit(*digits()), file="model.pkl")
    client = connect(server := serve().ready(), grpcclient)
    config = config_of(server, "digits")
    assert (config["backend"], config["max_batch_size"]) == ("sklearn", 8192) and "dynamic_batching" in config
    assert columns_of(config, "input") == [("X", "TYPE_FP64", [64])]
    assert columns_of(config, "output") == [("predict", "TYPE_INT64", [1]), ("predict_proba", "TYPE_FP64", [10])]
    for rows in (digits()[0][:1] / 16, digits()[0] / 16):
        found = infer(client, "digits", X=rows)
        assert np.array_equal(found["predict"][:, 0], linear().predict(rows))
        assert np.allclose(found["predict_proba"], linear().predict_proba(rows), atol=1e-12)
    assert infer(client, "forest", ["predict"], X=digits()[0])["predict"].shape == (len(digits()[0]), 1)


@pytest.mark.parametrize("file", ["model.joblib", "model.skops"])
def test_columns_of_texts_and_numbers_are_an_input_each(serve, write, connect, file):
    write("people", mixed(), file=file)
    client = connect(server := serve().ready(), grpcclient)
    config = config_of(server, "people")
    assert columns_of(config, "input") == [
        ("age", "TYPE_FP64", [1]), ("city", "TYPE_STRING", [1]), ("member", "TYPE_BOOL", [1]),
    ]  # fmt: skip
    assert columns_of(config, "output") == [("predict", "TYPE_STRING", [1]), ("predict_proba", "TYPE_FP64", [2])]
    frame, _ = people()
    frame = frame.copy()
    frame.loc[3, "age"] = np.nan
    found = infer(client, "people", **arrays(frame))
    assert [each.decode() for each in found["predict"][:, 0]] == list(mixed().predict(frame))
    assert np.allclose(found["predict_proba"], mixed().predict_proba(frame), atol=1e-12)


def arrays(frame):
    words = np.array([[each.encode()] for each in frame["city"]], np.object_)
    return {"age": frame[["age"]].to_numpy(), "city": words, "member": frame[["member"]].to_numpy()}


def test_texts_are_one_input(serve, write, connect):
    write("texts", texts())
    client = connect(server := serve().ready(), grpcclient)
    assert columns_of(config_of(server, "texts"), "input") == [("X", "TYPE_STRING", [1])]
    says = [["the cat"], ["the dog"]]
    found = infer(client, "texts", ["predict"], X=np.array([[each[0].encode()] for each in says], np.object_))
    assert found["predict"].tolist() == [[b"cat"], [b"dog"]] and list(found) == ["predict"]


TYPES = {
    "BOOL": "?", "FP16": "f2", "FP32": "f4", "FP64": "f8",
    **{f"{kind}{size}": f"{kind}{size}".lower() for kind in ("INT", "UINT") for size in (8, 16, 32, 64)},
}  # fmt: skip


def test_types_are_the_configuration_s(serve, write, connect):
    names = [f"X{at}" for at in range(len(TYPES))]
    pairs = zip(names, TYPES, strict=True)
    columns = [f'{{ name: "{name}" data_type: TYPE_{dtype} dims: [ 1 ] }}' for name, dtype in pairs]
    scaler = StandardScaler().fit(np.arange(3 * len(TYPES)).reshape(3, -1))
    write("all", scaler, f"max_batch_size: 8 input [ {', '.join(columns)} ]\n"
          f'output {{ name: "transform" data_type: TYPE_FP32 dims: [ {len(TYPES)} ] }}')  # fmt: skip
    made = ("FP32", "INT32", "UINT8")
    for dtype in made:
        numbers = f'max_batch_size: 8 output {{ name: "predict" data_type: TYPE_{dtype} dims: [ 1 ] }}\n'
        write(dtype.lower(), LinearRegression().fit(np.eye(2), [0, 1]), numbers)
    client = connect(serve().ready(), grpcclient)
    rows = {name: np.array([[0], [1], [1]], kind) for name, kind in zip(names, TYPES.values(), strict=True)}
    found = infer(client, "all", **rows)["transform"]
    assert found.dtype == np.float32
    assert np.allclose(found, scaler.transform(np.hstack(list(rows.values())).astype(float)), atol=1e-6)
    for dtype in made:
        found = infer(client, dtype.lower(), X=np.array([[9.0, 10.0]]))["predict"]
        assert found.dtype == np.dtype(TYPES[dtype]) and found.shape == (1, 1), dtype


def test_outputs_of_several_targets_and_of_sparse_tables(serve, write, connect):
    rows, labels = digits()
    both = RandomForestClassifier(5, random_state=1).fit(rows, np.stack([labels, labels > 4], axis=1))
    write("both", both)
    write("line", LinearRegression().fit(rows, rows[:, 3:6]))
    write("hot", OneHotEncoder().fit(np.array([["a", "x"], ["b", "y"]], object)))
    client = connect(server := serve().ready(), grpcclient)
    assert columns_of(config_of(server, "both"), "output") == [
        ("predict", "TYPE_INT64", [2]), ("predict_proba_0", "TYPE_FP64", [10]), ("predict_proba_1", "TYPE_FP64", [2]),
    ]  # fmt: skip
    found = infer(client, "both", X=rows[:5])
    assert np.array_equal(found["predict"], both.predict(rows[:5]))
    assert np.allclose(found["predict_proba_1"], both.predict_proba(rows[:5])[1])
    assert np.allclose(infer(client, "line", X=rows[:5])["predict"], rows[:5, 3:6])
    words = np.array([[b"b", b"x"]], np.object_)
    assert infer(client, "hot", X=words)["transform"].tolist() == [[0, 1, 1, 0]]


@contextmanager
def module_of(source, name):
    """A module that can be imported here for as long as a model of its classes is saved."""
    module = types.ModuleType(name)
    exec(source.replace("__name__", repr(name)), module.__dict__)
    sys.modules[name] = module
    try:
        yield module
    finally:
        del sys.modules[name]


def test_only_what_clients_ask_for_is_computed(serve, write, connect):
    with module_of(OWN, "halves") as module:
        path = write("halves", pickle.dumps(module.Halves()), file="model.pkl")
    (path.parent / "halves.py").write_text(OWN)
    client = connect(serve().ready(), grpcclient)
    rows = np.array([[4.0, 1.0]])
    assert infer(client, "halves", ["predict"], X=rows)["predict"].tolist() == [[2.0]]
    with pytest.raises(InferenceServerException, match="nobody may ask for this"):
        infer(client, "halves", X=rows)
    assert infer(client, "halves", ["predict"], X=rows)["predict"].tolist() == [[2.0]]


def test_a_method_does_not_see_what_another_one_has_written(serve, write, connect):
    rows = np.ascontiguousarray(digits()[0])
    model = make_pipeline(StandardScaler(copy=False), LogisticRegression(max_iter=1000)).fit(rows.copy(), digits()[1])
    write("m", model)
    found = infer(connect(serve().ready(), grpcclient), "m", X=rows[:50])
    assert np.array_equal(found["predict"].ravel(), model.predict(rows[:50].copy()))
    assert np.allclose(found["predict_proba"], model.predict_proba(rows[:50].copy()))


def test_requests_are_joined_and_each_gets_its_own_rows(serve, write, connect):
    write("people", mixed(), "max_batch_size: 64 dynamic_batching { max_queue_delay_microseconds: 20000 }")
    client = connect(server := serve().ready(), grpcclient)
    frame, _ = people()
    parts = [frame[at : at + 1 + at % 3] for at in range(60)]
    answers = infer_each(client, "people", [arrays(part) for part in parts])
    for part, answer in zip(parts, answers, strict=True):
        assert np.allclose(answer["predict_proba"], mixed().predict_proba(part), atol=1e-12)
    count, batches = executions(server, "people")
    assert count == sum(map(len, parts)) and batches < len(parts)


def test_what_an_estimator_refuses_is_told_to_its_client(serve, write, connect):
    write("people", mixed())
    client = connect(serve().ready(), grpcclient)
    wrong = arrays(people()[0][:1])
    wrong["city"][0, 0] = b"Atlantis"
    with pytest.raises(InferenceServerException, match="predict of model 'people': Found unknown categories") as caught:
        infer(client, "people", **wrong)
    assert "Traceback" not in str(caught.value) and ".py" not in str(caught.value)
    wrong["city"][0, 0] = b"\xff"
    with pytest.raises(InferenceServerException, match="model .people. has an element that is not UTF-8"):
        infer(client, "people", **wrong)
    assert infer(client, "people", **arrays(people()[0][:1]))["predict"].shape == (1, 1)


def dumped(model):
    return pickle.dumps(model)


X = 'input {{ name: "{}" data_type: TYPE_FP64 dims: [ {} ] }} '
Y = 'output {{ name: "{}" data_type: TYPE_FP64 dims: [ {} ] }}'


def wrong_files():
    """By name: (content, configuration, words of the reason)."""
    whole = dumped(linear())
    return {
        "half": (whole[: len(whole) // 2], "", "model.joblib cannot be read as a model of scikit-learn"),
        "noise": (b"\x08\x07onnx" * 99, "", "model.joblib cannot be read as a model of scikit-learn"),
        "empty": (b"", "", "model.joblib cannot be read as a model of scikit-learn"),
        "dict": (dumped({"a": 1}), "", "model.joblib holds a dict, which has no method predict or"),
        "unfitted": (dumped(LogisticRegression()), "", "model.joblib does not tell how many columns"),
        "module": (b"cnowhere_at_all\nThing\n.", "", "package 'nowhere_at_all' is missing in the environment of model"),
        "main": (b"c__main__\nThing\n.", "", "It stood in the program that saved the model"),
        "zip": (b"PK\x03\x04" + b"x" * 99, "", "model.joblib cannot be read as a model of scikit-learn"),
        "output": (whole, Y.format("probability", 10), "unexpected inference output 'probability', allowed"),
        "columns": (whole, "max_batch_size: 8 " + X.format("X", 65) + Y.format("predict", 1), "write dims: [64]"),
        "bits": (whole, "max_batch_size: 8 " + X.format("X", 64).replace("FP64", "BF16"),
                 "unsupported datatype TYPE_BF16 for input 'X' for model 'bits'"),
        "words": (dumped(mixed()), "max_batch_size: 8 " + Y.format("predict", 1),
                  "'predict' of model 'words' cannot be FP64: could not convert string to float"),
        "classes": (whole, "max_batch_size: 8 " + X.format("X", 64) + Y.format("predict_proba", 9), "write dims: [10]"),
    }  # fmt: skip


def test_what_is_wrong_with_a_file_or_its_configuration_is_told(serve, write, connect):
    cases = wrong_files()
    for name, (content, config, _) in cases.items():
        write(name, content, config)
    write("right", mixed())
    client = connect(server := serve(*UNREADY).ready(), grpcclient)
    for name, (_, _, words) in cases.items():
        reason = reason_of(server, name)
        assert words in reason and "Traceback" not in reason, name
    assert infer(client, "right", **arrays(people()[0][:1]))["predict"].shape == (1, 1)


DOUBLED = """
from sklearn.preprocessing import StandardScaler

class Doubled(StandardScaler):
    def transform(self, X):
        return X * 2
"""


def test_types_that_skops_does_not_know_are_named_and_may_be_trusted(serve, write, connect):
    with module_of(DOUBLED, "doubled") as module:
        model = make_pipeline(module.Doubled(), LinearRegression()).fit(np.eye(3), [1, 2, 3])
        write("refused", model, file="model.skops")
        trust = 'parameters { key: "trusted_types" value { string_value: "doubled.Doubled" } }'
        path = write("trusted", model, trust, "model.skops")
        wanted = model.predict(np.eye(3))
    (path.parent / "doubled.py").write_text(DOUBLED)
    client = connect(server := serve(*UNREADY).ready(), grpcclient)
    assert "could run code: doubled.Doubled. If you trust them" in reason_of(server, "refused")
    assert np.allclose(infer(client, "trusted", X=np.eye(3))["predict"][:, 0], wanted)


def test_a_model_of_another_version_is_told(serve, write):
    version = sklearn.__version__.encode()
    other = b"0" + version[1:]
    write("old", dumped(linear()).replace(version, other))
    server = serve().ready()
    server.says(f"model.joblib of model 'old' was saved by scikit-learn {other.decode()} and is read by")


def test_a_worker_that_is_killed_comes_back_and_a_changed_file_is_loaded(serve, write, connect):
    write("m", linear())
    client = connect(server := serve("--model-control-mode=explicit", "--load-model=m").ready(), grpcclient)
    before = server.worker("m_0")
    psutil.Process(before).send_signal(signal.SIGKILL)
    until(lambda: server.worker("m_0") != before and server.model_ready("m"), "the model is ready again")
    assert infer(client, "m", X=np.zeros((1, 64)))["predict"].shape == (1, 1)
    write("m", texts())
    client.load_model("m")
    assert infer(client, "m", X=np.array([[b"cat"]], np.object_))["predict"].tolist() == [[b"cat"]]


def test_files_come_with_a_load_call_only_where_the_operator_allows_it(serve, tmp_path, connect):
    (tmp_path / "models").mkdir()
    order = {"config": '{"backend": "sklearn"}', "files": {"file:1/model.joblib": dumped(linear())}}
    client = connect(serve("--model-control-mode=explicit", "--allow-pickled-models=true").ready(), grpcclient)
    client.load_model("m", **order)
    assert infer(client, "m", X=np.zeros((1, 64)))["predict"].shape == (1, 1)
    client = connect(serve("--model-control-mode=explicit").ready(), grpcclient)
    with pytest.raises(InferenceServerException, match=r"model\.joblib.* only with --allow-pickled-models"):
        client.load_model("m", **order)
