"""Forests of XGBoost, LightGBM, scikit-learn and treelite, served by backend `fil`: docs/fil.md."""

from __future__ import annotations

import pickle
import signal
from functools import cache

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

treelite = pytest.importorskip("treelite", reason="treelite has no wheel for this interpreter")
xgboost = pytest.importorskip("xgboost", reason="XGBoost has no wheel for this machine")
lightgbm = pytest.importorskip("lightgbm", reason="LightGBM has no wheel for this interpreter")

from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits  # noqa: E402 - comes with the examples
from sklearn.ensemble import RandomForestClassifier  # noqa: E402

from tests.system.array_calls import (  # noqa: E402
    UNREADY,
    config_of,
    executions,
    infer,
    infer_each,
    reason_of,
)
from tests.system.helpers import until  # noqa: E402

FIL = 'backend: "fil" max_batch_size: 1000\n'


def tensors(features, columns, more=""):
    return (
        f'input {{ name: "input__0" data_type: TYPE_FP32 dims: [ {features} ] }}\n'
        f'output [ {{ name: "output__0" data_type: TYPE_FP32 dims: [ {columns} ] }} {more} ]\n'
    )


def parameters(**said):
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{said[key]}" }} }}\n' for key in said)


@cache
def table(load):
    rows, target = load(return_X_y=True)
    return rows.astype(np.float32), target


@cache
def booster(load, trees=20, **options):
    rows, target = table(load)
    return xgboost.train({"max_depth": 4, **options}, xgboost.DMatrix(rows, target), trees)


def binary():
    return booster(load_breast_cancer, objective="binary:logistic")


def many():
    return booster(load_digits, objective="multi:softprob", num_class=10)


def regression():
    return booster(load_diabetes, objective="reg:squarederror")


@cache
def light():
    rows, target = table(load_breast_cancer)
    return lightgbm.train({"objective": "binary", "verbose": -1}, lightgbm.Dataset(rows, target), 20)


@cache
def forest():
    return RandomForestClassifier(20, max_depth=6, random_state=1).fit(*table(load_digits))


def checkpoint(path):
    treelite.sklearn.import_model(forest()).serialize(str(path))


WRITERS = {
    "xgboost.json": lambda path: binary().save_model(path),
    "xgboost.ubj": lambda path: binary().save_model(path),
    "model.txt": lambda path: light().save_model(path),
    "checkpoint.tl": checkpoint,
}


@pytest.fixture
def write(tmp_path):
    """Write a model into the test's repository: `file` by what `save` does with its path."""

    def written(name, file, save=None, config=""):
        folder = tmp_path / "models" / name / "1"
        folder.mkdir(parents=True, exist_ok=True)
        (save or WRITERS[file])(folder / file)
        if config:
            (folder.parent / "config.pbtxt").write_text(config)
        return folder / file

    return written


def test_a_folder_with_nothing_but_a_forest_is_served(serve, write, connect):
    for file in WRITERS:
        write(file.replace(".", "_"), file)
    client = connect(server := serve().ready(), grpcclient)
    rows, _ = table(load_breast_cancer)
    wanted = (binary().inplace_predict(rows) > 0.5).astype(np.float32)[:, None]
    for name in ("xgboost_json", "xgboost_ubj"):
        assert np.array_equal(infer(client, name, input__0=rows)["output__0"], wanted)
    wanted = (light().predict(rows) > 0.5).astype(np.float32)[:, None]
    assert np.array_equal(infer(client, "model_txt", input__0=rows)["output__0"], wanted)
    digits, _ = table(load_digits)
    found = infer(client, "checkpoint_tl", input__0=digits)["output__0"]
    assert found.dtype == np.float32 and np.array_equal(found[:, 0], forest().predict(digits))
    config = config_of(server, "model_txt")
    assert (config["backend"], config["max_batch_size"]) == ("fil", 8192)
    assert config["input"][0]["dims"] == [30] and config["output"][0]["dims"] == [1]
    assert "dynamic_batching" in config and config["instance_group"][0]["kind"] == "KIND_CPU"


CASES = {
    "labels": (binary, 1, {"is_classifier": "true"}, lambda scores: scores > 0.5),
    "old_name": (binary, 1, {"output_class": "true"}, lambda scores: scores > 0.5),
    "threshold": (binary, 1, {"is_classifier": "TRUE", "threshold": "0.9"}, lambda scores: scores > 0.9),
    "sure": (binary, 1, {"is_classifier": "on", "predict_proba": "true"}, lambda scores: scores),
    "both": (binary, 2, {"predict_proba": "1"}, lambda scores: np.stack([1 - scores, scores], axis=-1)),
    "no_class": (binary, 1, {"is_classifier": "false"}, lambda scores: scores),
    "digit": (many, 1, {"is_classifier": "true"}, lambda scores: scores.argmax(axis=1)),
    "digits": (many, 10, {"is_classifier": "true", "predict_proba": "true"}, lambda scores: scores),
    "value": (regression, 1, {"is_classifier": "false"}, lambda scores: scores),
    "package": (many, 10, {"predict_proba": "true", "engine": "package"}, lambda scores: scores),
    "both_engines": (many, 10, {"predict_proba": "true", "engine": "auto"}, lambda scores: scores),
}  # fmt: skip
DATA = {binary: load_breast_cancer, many: load_digits, regression: load_diabetes}


def test_every_parameter_that_changes_answers(serve, write, connect):
    for name, (model, columns, said, _) in CASES.items():
        features = table(DATA[model])[0].shape[1]
        config = FIL + tensors(features, columns) + parameters(model_type="xgboost_ubj", **said)
        write(name, "xgboost.ubj", model().save_model, config)
    client = connect(serve().ready(), grpcclient)
    for name, (model, columns, _, means) in CASES.items():
        rows, _ = table(DATA[model])
        for some in (rows[:1], rows[:200]):
            found = infer(client, name, input__0=some)["output__0"]
            wanted = np.asarray(means(model().inplace_predict(some)), np.float32).reshape(-1, columns)
            assert np.allclose(found, wanted, atol=1e-5), name


def test_without_batching_a_table_may_have_no_rows(serve, write, connect):
    config = FIL.replace("1000", "0") + tensors("-1, 30", "-1, 1") + parameters(predict_proba="true")
    write("m", "xgboost.json", config=config)
    client = connect(serve().ready(), grpcclient)
    rows, _ = table(load_breast_cancer)
    for count in (0, 1, 3, 300):
        found = infer(client, "m", input__0=rows[:count])["output__0"]
        assert found.shape == (count, 1)
        assert not count or np.allclose(found[:, 0], binary().inplace_predict(rows[:count]), atol=1e-6)


def test_values_that_are_missing_follow_the_tree(serve, write, connect):
    write("m", "xgboost.json", config=FIL + tensors(30, 1) + parameters(is_classifier="true", predict_proba="true"))
    client = connect(serve().ready(), grpcclient)
    rows = table(load_breast_cancer)[0][:50].copy()
    rows[::2, ::3] = np.nan
    found = infer(client, "m", input__0=rows)["output__0"][:, 0]
    assert np.allclose(found, binary().inplace_predict(rows), atol=1e-6)


def test_parameters_that_only_tune_are_taken_and_told(serve, write, connect):
    said = {"algo": "ALGO_AUTO", "storage_type": "AUTO", "blocks_per_sm": "0", "threads_per_tree": "1",
            "chunk_size": "4", "layout": "depth_first", "transfer_threshold": "2",
            "use_experimental_optimizations": "true", "cpu_nthread": "1"}  # fmt: skip
    write("m", "xgboost.json", config=FIL + tensors(30, 1) + parameters(**said))
    server = serve().ready()
    told = server.says("parameters that only tune have no effect here")["message"]
    assert "algo, threads_per_tree, storage_type, blocks_per_sm, layout, chunk_size" in told
    assert "cpu_nthread" not in told
    assert infer(connect(server, grpcclient), "m", input__0=np.zeros((1, 30), np.float32))["output__0"].shape == (1, 1)


def test_xgboost_without_an_ending_it_knows_writes_ubjson_and_is_served(serve, write, connect):
    write("m", "xgboost.model", lambda path: path.write_bytes(bytes(binary().save_raw("ubj"))),
          FIL + tensors(30, 1) + parameters(model_type="xgboost"))  # fmt: skip
    client = connect(serve().ready(), grpcclient)
    assert infer(client, "m", input__0=table(load_breast_cancer)[0][:3])["output__0"].shape == (3, 1)


def test_shapley_values_of_the_package_that_wrote_the_model(serve, write, connect):
    more = ', {{ name: "treeshap_output" data_type: TYPE_FP32 dims: [ {} ] }}'
    write("one", "xgboost.json", config=FIL + tensors(30, 1, more.format(31)))
    write("ten", "xgboost.json", many().save_model, FIL + tensors(64, 1, more.format(650)))
    write("light", "model.txt", config=FIL + tensors(30, 1, more.format(31)))
    write("tree", "checkpoint.tl", config=FIL + tensors(64, 1, more.format(650)))
    client = connect(server := serve(*UNREADY).ready(), grpcclient)
    rows, digits = table(load_breast_cancer)[0][:5], table(load_digits)[0][:5]
    wanted = binary().predict(xgboost.DMatrix(rows), pred_contribs=True)
    assert np.allclose(infer(client, "one", input__0=rows)["treeshap_output"], wanted, atol=1e-5)
    wanted = many().predict(xgboost.DMatrix(digits), pred_contribs=True).reshape(5, -1)
    assert np.allclose(infer(client, "ten", input__0=digits)["treeshap_output"], wanted, atol=1e-5)
    wanted = light().predict(rows, pred_contrib=True)
    assert np.allclose(infer(client, "light", input__0=rows)["treeshap_output"], wanted, atol=1e-5)
    assert "checkpoint.tl holds a treelite checkpoint, of which only treelite makes" in reason_of(server, "tree")


def test_requests_are_joined_and_each_gets_its_own_rows(serve, write, connect):
    batching = "dynamic_batching { max_queue_delay_microseconds: 20000 preferred_batch_size: [ 64 ] }\n"
    write("m", "xgboost.json", config=FIL + batching + tensors(30, 1) + parameters(predict_proba="true"))
    client = connect(server := serve().ready(), grpcclient)
    rows, _ = table(load_breast_cancer)
    parts = [rows[at : at + 1 + at % 3] for at in range(100)]
    answers = infer_each(client, "m", [{"input__0": part} for part in parts])
    for part, answer in zip(parts, answers, strict=True):
        assert np.allclose(answer["output__0"][:, 0], binary().inplace_predict(part), atol=1e-6)
    count, batches = executions(server, "m")
    assert count == sum(map(len, parts)) and batches < len(parts)


def cut(keep):
    """Write a whole model, and then only a part of it: a share, or all but some bytes."""

    def of(save):
        def saved(path):
            save(path)
            content = path.read_bytes()
            path.write_bytes(content[: int(len(content) * keep)] if keep > 0 else content[:keep])

        return saved

    return of


half, nearly = cut(0.5), cut(-500)
WRONG = {
    "half_json": ("xgboost.json", half(WRITERS["xgboost.json"]), "", "no whole file of XGBoost's JSON"),
    "half_ubj": ("xgboost.ubj", half(WRITERS["xgboost.ubj"]), "", "no whole file of XGBoost's UBJSON"),
    "half_text": ("model.txt", half(WRITERS["model.txt"]), "", "it has no line 'end of trees'"),
    "half_tree": ("checkpoint.tl", half(checkpoint), "", "no whole file of a treelite checkpoint"),
    "near_tree": ("checkpoint.tl", nearly(checkpoint), "", "no whole file of a treelite checkpoint"),
    "noise": ("xgboost.model", lambda path: path.write_bytes(b'\7' * 999), "", "no whole file of XGBoost's"),
    "lengths": ("xgboost.model", lambda path: path.write_bytes(b'\x7f' * 999), "", "its lengths are those of no file"),
    "empty": ("xgboost.json", lambda path: path.write_bytes(b""), "", "xgboost.json is empty"),
    "pickle": ("checkpoint.tl", lambda path: path.write_bytes(pickle.dumps(forest())), "", "is a pickle, which"),
    "other": ("xgboost.json", WRITERS["model.txt"], parameters(model_type="xgboost_json"),
              "/1/xgboost.json holds LightGBM's text: write model_type: 'lightgbm'"),
    "unknown": ("xgboost.json", WRITERS["xgboost.json"], parameters(model_type="catboost"),
                "catboost not recognized as a valid serialization format"),
    "name": ("xgboost.json", WRITERS["xgboost.json"], tensors(30, 1).replace("input__0", "X"),
             "unexpected inference input 'X', allowed inputs are: input__0"),
    "columns": ("xgboost.json", WRITERS["xgboost.json"], tensors(31, 1), r"write dims: [30]"),
    "double": ("xgboost.json", WRITERS["xgboost.json"], tensors(30, 1).replace("FP32", "FP64"),
               "configuration expects datatype TYPE_FP64 for input 'input__0', model provides TYPE_FP32"),
    "targets": ("xgboost.json", lambda path: targets().save_model(path), "", "Multi-target model not supported"),
    "boolean": ("xgboost.json", WRITERS["xgboost.json"], parameters(predict_proba="maybe"), "'maybe' to boolean"),
}  # fmt: skip


@cache
def targets():
    rows, _ = table(load_diabetes)
    return xgboost.train({"objective": "reg:squarederror"}, xgboost.DMatrix(rows, rows[:, :2]), 2)


def test_what_is_wrong_with_a_file_or_its_configuration_is_told(serve, write, connect):
    for name, (file, save, config, _) in WRONG.items():
        write(name, file, save, FIL + config if config else "")
    write("right", "xgboost.json")
    client = connect(server := serve(*UNREADY).ready(), grpcclient)
    for name, (_, _, _, words) in WRONG.items():
        reason = reason_of(server, name)
        assert words in reason and "Traceback" not in reason, name
    assert infer(client, "right", input__0=np.zeros((1, 30), np.float32))["output__0"].shape == (1, 1)


def test_a_request_that_does_not_fit_is_refused_and_the_model_goes_on(serve, write, connect):
    write("m", "xgboost.json")
    client = connect(serve().ready(), grpcclient)
    with pytest.raises(InferenceServerException, match="unexpected shape for input 'input__0'"):
        infer(client, "m", input__0=np.zeros((1, 29), np.float32))
    with pytest.raises(InferenceServerException, match="data-type is 'FP64', but model 'm' expects 'FP32'"):
        infer(client, "m", input__0=np.zeros((1, 30)))
    assert infer(client, "m", input__0=np.zeros((1, 30), np.float32))["output__0"].shape == (1, 1)


def test_a_worker_that_is_killed_comes_back_and_a_changed_file_is_loaded(serve, write, connect):
    path = write("m", "xgboost.json")
    client = connect(server := serve("--model-control-mode=explicit", "--load-model=m").ready(), grpcclient)
    before = server.worker("m_0")
    psutil.Process(before).send_signal(signal.SIGKILL)
    until(lambda: server.worker("m_0") != before and server.model_ready("m"), "the model is ready again")
    assert infer(client, "m", input__0=np.zeros((1, 30), np.float32))["output__0"].shape == (1, 1)
    many().save_model(path)
    for _ in range(5):
        client.load_model("m")
        assert infer(client, "m", input__0=np.zeros((2, 64), np.float32))["output__0"].shape == (2, 1)
        client.unload_model("m")
        until(lambda: not server.model_ready("m"), "the model is unloaded")
