"""The table of backends: names, platforms, files, and what --backend-directory and --backend-config make of it."""

from __future__ import annotations

import pytest

from tests.config.loading import shown
from tisfast.config.backend_flags import number, read_backend_config, read_backends
from tisfast.config.backends import BUILT_IN, BackendInfo, Backends, Completion, library_of
from tisfast.errors import ConfigError

TABLE = [  # name, served, platforms, files
    ("python", True, (), ("model.py",)),
    ("onnxruntime", True, ("onnxruntime_onnx",), ("model.onnx",)),
    ("tensorrt", True, ("tensorrt_plan",), ("model.plan",)),
    ("pytorch", True, ("pytorch_libtorch", "torch_aoti"), ("model.pt", "model.pt2")),
    ("tensorflow", True, ("tensorflow_savedmodel", "tensorflow_graphdef"), ("model.savedmodel", "model.graphdef")),
    ("openvino", True, ("openvino",), ("model.xml",)),
    ("fil", True, (), ("xgboost.model", "xgboost.json", "xgboost.ubj", "model.txt", "checkpoint.tl")),
    ("sklearn", True, (), ("model.joblib", "model.skops", "model.pkl")),
    ("dali", False, (), ()),
    ("vllm", False, (), ()),
    ("tensorrtllm", False, (), ()),
    ("identity", False, (), ()),
    ("repeat", False, (), ()),
    ("square", False, (), ()),
]


@pytest.mark.parametrize(("name", "served", "platforms", "files"), TABLE)
def test_a_backend_is_found_by_its_name_its_platforms_and_its_files(name, served, platforms, files):
    backend = BUILT_IN.named(name)
    assert (backend.name, backend.served, backend.platforms, backend.files) == (name, served, platforms, files)
    assert all(BUILT_IN.of_platform(platform) is backend for platform in platforms)
    assert all(BUILT_IN.of_file(file) is backend for file in files)


def test_the_table_is_whole():
    assert [backend.name for backend in BUILT_IN.all] == [name for name, *_ in TABLE]
    assert BUILT_IN.served == tuple(name for name, served, *_ in TABLE if served)
    assert BUILT_IN.platforms == tuple(platform for *_, platforms, _ in TABLE for platform in platforms)
    assert BUILT_IN.files == tuple(file for *_, files in TABLE for file in files)


@pytest.mark.parametrize("find", [BUILT_IN.named, BUILT_IN.of_platform, BUILT_IN.of_file])
def test_what_is_in_no_table_is_nothing(find):
    assert find("") is None and find("abacus") is None


@pytest.mark.parametrize(
    ("name", "module"),
    [("python", ""), ("onnxruntime", ""), ("pytorch", "torch"), ("openvino", "openvino"), ("fil", "treelite"),
     ("sklearn", "sklearn.ensemble"), ("tensorflow", "tensorflow")],
)  # fmt: skip
def test_modules_that_the_workers_of_a_backend_share(name, module):
    assert BUILT_IN.imports_of(name) == module


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("pickled", {"pytorch", "tensorflow", "sklearn"}),
        ("on_cpu", {"tensorflow", "openvino", "fil", "sklearn"}),
        ("folders", {"onnxruntime", "tensorflow", "openvino"}),
        ("writes_platform", {"onnxruntime", "tensorrt", "pytorch", "tensorflow"}),
        ("runtimes", {"pytorch"}),
        ("companions", {"pytorch", "sklearn"}),
        ("honours", {"onnxruntime", "tensorrt", "tensorflow"}),
        ("file_parameter", {"fil"}),
        ("module", set()),
        ("library", set()),
    ],
)
def test_what_backends_have_that_others_have_not(field, names):
    assert {backend.name for backend in BUILT_IN.all if getattr(backend, field)} == names


def test_each_kind_of_forest_has_its_file():
    assert dict(BUILT_IN.named("fil").file_of) == {
        "xgboost": "xgboost.model",
        "xgboost_json": "xgboost.json",
        "xgboost_ubj": "xgboost.ubj",
        "lightgbm": "model.txt",
        "treelite_checkpoint": "checkpoint.tl",
    }


@pytest.fixture
def directory(tmp_path):
    """Makes files of backends: "mlp/backend.py"."""

    def make(*files):
        for file in files:
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).touch()
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("files", "fields"),
    [
        (["x/backend.py"], {"served": True, "module": "x/backend.py"}),
        (["x/backend.py", "x/model.py"], {"served": True, "module": "x/backend.py"}),
        (["x/backend.py", "x/libtriton_x.so"], {"served": True, "module": "x/backend.py"}),
        (
            ["x/model.py"],
            {"served": True, "module": "x/model.py", "python_based": True, "completion": Completion.ASKED},
        ),
        (
            ["x/model.py", "x/libtriton_x.so"],
            {"served": True, "module": "x/model.py", "python_based": True, "completion": Completion.ASKED,
             "library": "x/libtriton_x.so"},
        ),
        (["x/libtriton_x.so"], {"library": "x/libtriton_x.so"}),
        (["x/libtriton_y.so"], None),
        (["x/readme.md"], None),
        (["x"], None),
    ],
)  # fmt: skip
def test_a_folder_of_backends_tells_by_its_files_what_each_is(directory, files, fields):
    folder = directory(*files)
    found = read_backends(str(folder), []).named("x")
    if fields is None:
        assert found is None
        return
    places = {name: str(folder / value) for name, value in fields.items() if name in ("module", "library")}
    assert found == BackendInfo("x", **{**fields, **places})


def test_backends_of_a_folder_come_first_and_in_the_order_of_their_names(directory):
    found = read_backends(str(directory("b/backend.py", "a/model.py", "tensorflow/backend.py")), [])
    assert [each.name for each in found.all][:3] == ["a", "b", "tensorflow"]
    assert [each.name for each in found.all].count("tensorflow") == 1
    assert found.of_file("model.graphdef") is None  # of the one whose place it takes


def test_a_library_in_c_takes_no_name_that_is_served(directory):
    folder = directory("onnxruntime/libtriton_onnxruntime.so", "dali/libtriton_dali.so")
    found = read_backends(str(folder), [])
    assert found.named("onnxruntime") is BUILT_IN.named("onnxruntime")
    assert found.named("dali").library == str(folder / "dali/libtriton_dali.so")


def test_a_backend_of_ones_own_may_take_the_place_of_ours_but_not_of_pythons(directory):
    assert read_backends(str(directory("onnxruntime/backend.py")), []).named("onnxruntime").module
    folder = directory("python/backend.py")
    with pytest.raises(ConfigError) as caught:
        read_backends(str(folder), [])
    assert shown(caught.value) == (
        f"backend-directory | --backend-directory={folder} has a backend 'python', which tisfast has itself "
        "| give it another name"
    )


def test_a_folder_that_cannot_be_read_is_told_with_what_it_should_hold(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        read_backends(str(tmp_path / "file"), [])
    assert shown(caught.value) == (
        f"backend-directory | --backend-directory={tmp_path}/file cannot be read: Not a directory | name a folder that "
        "holds NAME/backend.py or NAME/model.py for each backend"
    )


@pytest.mark.parametrize(("name", "based"), [("x", True), ("own", False), ("python", False), ("nobody", False)])
def test_an_environment_beside_a_model_file_is_that_of_its_models(directory, name, based):
    packed = "pb_exec_env_model.py.tar.gz"
    folder = directory("x/model.py", f"x/{packed}", "own/backend.py", f"own/{packed}")
    found = read_backends(str(folder), [])
    assert found.environment_of(name) == (str(folder / "x" / packed) if based else "")


def test_a_backend_without_a_packed_environment_has_none(directory):
    assert read_backends(str(directory("x/model.py")), []).environment_of("x") == ""


def test_workers_are_told_of_their_backend(directory):
    folder = directory("x/model.py", "y/backend.py")
    found = read_backends(str(folder), [], {"": {"all": "1", "of": "all"}, "x": {"of": "x"}})
    assert found.told_to_workers("x") == {
        "module": str(folder / "x/model.py"), "python_based": True, "settings": {"all": "1", "of": "x"},
    }  # fmt: skip
    assert found.told_to_workers("y")["settings"] == {"all": "1", "of": "all"}
    assert found.told_to_workers("python") == {
        "module": "", "python_based": False, "settings": {"all": "1", "of": "all"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "files", "library"),
    [
        ("c", ["1/libtriton_c.so", "2/libtriton_c.so"], "1/libtriton_c.so"),
        ("c", ["2/libtriton_c.so"], "2/libtriton_c.so"),
        ("c", ["1/libtriton_d.so"], None),
        ("dali", ["1/libtriton_dali.so"], "1/libtriton_dali.so"),
        ("onnxruntime", ["1/libtriton_onnxruntime.so"], None),
        ("", ["1/libtriton_.so"], None),
    ],
)
def test_a_library_in_a_models_own_folders_takes_a_name_that_nothing_serves(directory, name, files, library):
    folder = directory(*files)
    found = BUILT_IN.with_library(name, [folder / "1", folder / "2"])
    if library is None:
        assert found is BUILT_IN
    else:
        assert found.named(name) == BackendInfo(name, library=str(folder / library))
        assert [each.name for each in found.all].count(name) == 1


def test_a_library_has_the_name_that_triton_gives_it():
    assert library_of("onnxruntime") == "libtriton_onnxruntime.so"


MLP = [*BUILT_IN.all, BackendInfo("mlp", served=True, module="/b/mlp/backend.py"),
       BackendInfo("own", served=True, settings=frozenset({"speed"}))]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("default-max-batch-size=3", ""),
        ("python,stub-timeout-seconds=3", ""),
        ("python,default-max-batch-size=3", ""),
        ("stub-timeout-seconds=3", "the settings served are python,stub-timeout-seconds=SECONDS and "
                                   "default-max-batch-size=N"),
        ("python,speed=3", "the settings served are python,stub-timeout-seconds=SECONDS and default-max-batch-size=N"),
        ("python,shm-default-byte-size=3", "shared memory has no fixed pool and no name"),
        ("python,shm-growth-byte-size=3", "shared memory has no fixed pool and no name"),
        ("shm-region-prefix-name=x", "shared memory has no fixed pool and no name"),
        ("dali,x=3", "there is no backend 'dali' here"),
        ("tensorrt,x=3", "backend 'tensorrt' has no such setting"),
        ("abacus,x=3", "there is no backend 'abacus' here"),
        ("abacus,default-max-batch-size=3", "there is no backend 'abacus' here"),
        ("onnxruntime,x=3", "backend 'onnxruntime' has no such setting"),
    ],
)  # fmt: skip
def test_a_setting_that_no_backend_reads_is_told_once(entry, why):
    notices: list[str] = []
    found = read_backends("", notices, read_backend_config([entry]))
    assert notices == ([f"--backend-config={entry} has no effect here, because {why}"] if why else [])
    name, _, rest = entry.rpartition(",")
    assert found.settings_of(name or "python") == dict([rest.split("=")])


def test_a_backend_of_ones_own_reads_every_setting(directory):
    notices: list[str] = []
    told = read_backend_config(["mlp,anything=1", "everything=2"])
    found = read_backends(str(directory("mlp/backend.py")), notices, told)
    assert not notices and found.settings_of("mlp") == {"anything": "1", "everything": "2"}


def test_a_setting_that_one_backend_reads_may_be_for_all():
    backends = Backends(MLP[:-2] + MLP[-1:]).told({"": {"speed": "3"}})
    assert backends.settings_of("own") == {"speed": "3"} and BUILT_IN.settings_of("own") == {}


@pytest.mark.parametrize(
    ("entries", "backend", "found"),
    [
        ([], "", {}),
        (["default-max-batch-size=7"], "", {"size": 7}),
        (["default-max-batch-size=007"], "", {"size": 7}),
        (["default-max-batch-size=7", "default-max-batch-size=8"], "", {"size": 8}),
        (["python,default-max-batch-size=7"], "", {}),
        (["python,default-max-batch-size=7"], "python", {"size": 7}),
        (["default-max-batch-size=2147483647"], "", {"size": 2147483647}),
        (["default-max-batch-size=0"], "", {"size": 0}),
    ],
)
def test_a_number_of_a_setting_is_an_argument_where_it_is_given(entries, backend, found):
    assert number(read_backend_config(entries), backend, "default-max-batch-size", "size") == found
