"""tisfast check: all errors of all models, and what can be told from model.py."""
# ruff: noqa: E501 - one case, one line

import sys
from pathlib import Path

import pytest

from tests.repo.sources import MODEL
from tisfast.config.backend_flags import read_backends
from tisfast.environments.environment import Environment
from tisfast.repo.check import check
from tisfast.repo.scan import ScanOptions
from tisfast.repo.syntax import check_file

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(folder for folder in (ROOT / "examples").iterdir() if any(folder.glob("*/config.pbtxt")))


def lines(repo):
    return [str(finding).replace(f"{repo}/", "") for finding in check([repo])]


def test_nothing_to_find(repo, add):
    add("m")
    assert check([repo]) == []


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_the_examples_have_no_errors(folder):
    looking = ScanOptions(backends=read_backends(str(ROOT / "examples/backends"), []))
    assert [str(finding) for finding in check([folder], looking)] == []


def test_every_error_of_every_model(repo, add):
    add("a", {"config.pbtxt": "nam: 1\nplatfrm: 2", "1/model.py": "def f(:\n"})
    add("b", {"1/model.py": MODEL, "2/model.py": "x = 1\n"})
    add("c", {"1/model.py": "class TritonPythonModel:\n    def initialize(self, args): ...\n"})
    add("d")
    found = lines(repo)
    assert [line.split(": ")[0] for line in found] == [
        "a/config.pbtxt:1:1", "a/config.pbtxt:2:1", "a/1/model.py:1:7", "b/2/model.py", "c/1/model.py:1:1",
    ]  # fmt: skip
    assert "syntax error in the model" in found[2]
    assert found[3].endswith("the model file defines no class TritonPythonModel; name the class TritonPythonModel")
    assert found[4].endswith("class TritonPythonModel does not implement execute; add: def execute(self, requests)")


def test_a_wrong_parameter_is_said_with_its_place(repo, add):
    add("m", {"config.pbtxt": 'parameters {\n  key: "EXECUTION_TIMEOUT_SECONDS" value { string_value: "abc" }\n}',
              "1/model.py": MODEL})  # fmt: skip
    text = "parameter EXECUTION_TIMEOUT_SECONDS of m is 'abc'; give a number of seconds above 0"
    assert lines(repo) == [f"m/config.pbtxt:1:12: {text}"]


def test_ensembles_are_held_against_the_models_of_all_repositories(tmp_path, add):
    tensors = 'input { name: "A" data_type: TYPE_FP32 dims: 1 } output { name: "B" data_type: TYPE_FP32 dims: 1 }'
    maps = 'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" }'
    config = (
        f'platform: "ensemble" {tensors} ensemble_scheduling {{ step {{ model_name: "ok" model_version: -1 {maps} }} }}'
    )
    add("e", {"config.pbtxt": config, "1/.keep": ""}, repository="ensembles")
    add("ok", {"config.pbtxt": tensors, "1/model.py": MODEL}, repository="models")
    assert check([tmp_path / "ensembles", tmp_path / "models"]) == []
    (finding,) = check([tmp_path / "ensembles"])
    assert finding.model == "e"
    assert finding.error.message == "ensemble e contains models that are not available or ambiguous: ok"


def test_a_missing_repository_is_a_finding_and_hides_no_other(repo, add):
    add("m", {})
    found = check([repo / "nowhere", repo])
    assert [finding.model for finding in found] == ["", "m"]


def test_duplicates_name_the_model(tmp_path, add):
    add("m", repository="a")
    add("m", repository="b")
    assert str(check([tmp_path / "a", tmp_path / "b"])[0]).startswith("m: model 'm' is not unique")


@pytest.mark.parametrize(
    "source",
    [
        MODEL,
        "class TritonPythonModel:\n    async def execute(self, requests): ...\n",
        "class TritonPythonModel:\n    execute = print\n",
        "class TritonPythonModel:\n    def execute_batch(self, inputs): ...\n",
        "from x import Base\nclass TritonPythonModel(Base): ...\n",
        "from x import TritonPythonModel\n",
        "from x import *\n",
        "try:\n    import cupy\nexcept ImportError:\n    pass\nelse:\n    class TritonPythonModel:\n        def execute(self, r): ...\n",
        "TritonPythonModel = type('X', (), {})\n",
    ],
)  # fmt: skip
def test_models_that_may_be_fine(tmp_path, source):
    (tmp_path / "model.py").write_text(source)
    assert check_file(tmp_path / "model.py", None) == []


ELEMENTS = """
max_batch_size: 4
input { name: "A" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
batch_input { kind: BATCH_ELEMENT_COUNT target_name: "N" data_type: TYPE_INT32 source_input: "A" }
"""


def test_batch_inputs_want_execute_batch(repo, add):
    add("m", {"config.pbtxt": ELEMENTS, "1/model.py": "\n" + MODEL})
    text = "'batch_input' is about the arrays of execute_batch, and class TritonPythonModel has none"
    hint = "add: def execute_batch(self, inputs), or remove 'batch_input'"
    assert lines(repo) == [f"m/1/model.py:2:1: {text}; {hint}"]


@pytest.mark.parametrize(
    "source",
    [
        "class TritonPythonModel:\n    def execute_batch(self, inputs): ...\n",
        "class TritonPythonModel:\n    def execute(self, r): ...\n    def initialize(self, a):\n        self.execute_batch = a\n",
        "from x import Base\nclass TritonPythonModel(Base):\n    def execute(self, r): ...\n",
        "from x import with_arrays\n@with_arrays\nclass TritonPythonModel:\n    def execute(self, r): ...\n",
        "class TritonPythonModel:\n    def execute(self, r): ...\n    def __getattr__(self, name): ...\n",
    ],
)  # fmt: skip
def test_models_that_may_have_execute_batch(repo, add, source):
    add("m", {"config.pbtxt": ELEMENTS, "1/model.py": source})
    assert lines(repo) == []


def test_a_models_own_interpreter_parses_it(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "bad.py").write_text("def f(:\n")
    environment = Environment("interpreter", Path(sys.executable), interpreter=Path(sys.executable))
    assert check_file(tmp_path / "model.py", environment) == []
    (error,) = check_file(tmp_path / "bad.py", environment)
    assert "cannot parse the model: SyntaxError" in error.message


def test_an_interpreter_that_does_not_run(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    nowhere = tmp_path / "nowhere"
    (error,) = check_file(tmp_path / "model.py", Environment("interpreter", nowhere, interpreter=nowhere))
    assert "the model's interpreter does not run" in error.message


def test_an_environment_that_is_still_to_be_prepared_is_not_asked(tmp_path):
    (tmp_path / "new.py").write_text("syntax of the year 2050\n")
    assert check_file(tmp_path / "new.py", Environment("archive", tmp_path / "env.zip")) == []


def test_bytes_that_are_no_python(tmp_path):
    (tmp_path / "model.py").write_bytes(b"\xff\x00")
    assert len(check_file(tmp_path / "model.py", None)) == 1
