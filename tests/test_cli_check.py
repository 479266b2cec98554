"""`tisfast check FILE`: files are checked as they would be served, and errors name them."""

from __future__ import annotations

import pytest

from tests.system.helpers import ADD_ONE, CONFIG
from tisfast import cli

SAYING = (
    ADD_ONE
    + """
    @classmethod
    def auto_complete_config(cls, config):
        config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "B", "data_type": "TYPE_FP32", "dims": [-1]})
        return config
"""
)


@pytest.fixture
def check(capsys):
    """Run it: the exit code, and what it printed."""

    def run(*arguments):
        code = cli.main(["check", *map(str, arguments)])
        return code, capsys.readouterr().out

    return run


def test_files_and_repositories_are_checked_together(check, tmp_path):
    (tmp_path / "plus.py").write_text(SAYING)
    (tmp_path / "models/one/1").mkdir(parents=True)
    (tmp_path / "models/one/1/model.py").write_text(ADD_ONE)
    (tmp_path / "models/one/config.pbtxt").write_text(CONFIG)
    assert check(tmp_path / "plus.py", f"other={tmp_path / 'plus.py'}", tmp_path / "models") == (
        0, "3 model(s), no errors\n",
    )  # fmt: skip


def test_errors_name_the_files(check, tmp_path):
    (tmp_path / "plus.py").write_text("def f(:\n")
    (tmp_path / "plus.pbtxt").write_text("max_bach_size: 1")
    code, said = check(tmp_path / "plus.py")
    assert code == 1 and f"{tmp_path}/plus.pbtxt:1:1: unknown key" in said
    assert f"{tmp_path}/plus.py:1:7: syntax error" in said and said.endswith("1 model(s), 2 error(s)\n")


def test_code_without_tensors_is_an_error(check, tmp_path):
    (tmp_path / "plus.py").write_text(ADD_ONE)
    code, said = check(tmp_path / "plus.py")
    assert code == 1 and f"{tmp_path}/plus.py does not say which inputs and outputs model 'plus' has" in said


def test_a_name_that_a_repository_has_too_is_an_error(check, tmp_path):
    (tmp_path / "models/one/1").mkdir(parents=True)
    (tmp_path / "models/one/1/model.py").write_text(ADD_ONE)
    (tmp_path / "one.py").write_text(SAYING)
    code, said = check(tmp_path / "one.py", tmp_path / "models")
    assert code == 1 and "'one' is not unique" in said and f"{tmp_path}/one.py" in said


def test_a_folder_of_files_is_told_how_to_check_one(check, tmp_path):
    (tmp_path / "plus.py").write_text(SAYING)
    code, said = check(tmp_path)
    assert code == 1 and f"; 'tisfast check {tmp_path}/plus.py' checks that file" in said


def test_what_is_not_there_is_a_finding(check, tmp_path):
    code, said = check(tmp_path / "nothing")
    assert code == 1 and f"repository path is not a valid directory: {tmp_path}/nothing" in said


def test_files_are_run(check, tmp_path):
    (tmp_path / "plus.py").write_text(SAYING)
    code, said = check("--run", tmp_path / "plus.py")
    assert (code, said) == (0, "1 model(s), no errors\n1 model(s) loaded and warmed up, no finding(s)\n")
    (tmp_path / "plus.py").write_text(SAYING.replace("return config", "raise ValueError('not so')"))
    code, said = check("--run", tmp_path / "plus.py")
    assert code == 1 and "not so" in said
