"""`tisfast env`."""

from __future__ import annotations

import re
import sys
import venv

import pytest

from tests.environments.conftest import pack  # noqa: F401 - a fixture
from tests.environments.wheels import write_wheel
from tisfast.cli import main


@pytest.fixture
def env(tmp_path, capsys):
    """Run a command on the test's cache: its exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["env", *map(str, arguments), "--environment-cache-dir", str(tmp_path / "cache")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_build_prints_the_interpreter(env, pack, tmp_path):  # noqa: F811
    archive = pack()
    code, out, err = env("build", archive)
    assert code == 0 and out.startswith(str(tmp_path / "cache/archive-")) and out.endswith("/env/bin/python\n")
    assert re.search(r"packed environment .*env.tar.gz is ready after [0-9.]+ s: Python 3[0-9.]+, .* in 2 files", err)
    assert env("build", archive)[1] == out


def test_check_says_what_models_will_find(env, tmp_path):
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    code, out, _ = env("check", tmp_path / "env")
    lines = dict(line.split(None, 1) for line in out.replace("worker runtime", "runtime").splitlines())
    assert code == 0 and lines["runtime"].strip() == "imports"
    assert lines["python"].startswith("cpython " + ".".join(map(str, sys.version_info[:3])))
    assert lines["numpy"] == (
        "none, so no tensors (ModuleNotFoundError: No module named 'numpy'); "
        f"{tmp_path}/env/bin/python3 -m pip install numpy"
    )
    assert "files" in lines["size"]
    code, out, _ = env("check", sys.executable)
    assert code == 0 and re.search(r"numpy +\d", out) and "size" not in out


def test_check_of_what_cannot_serve(env, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no luck >&2\nexit 1\n")
    broken.chmod(0o755)
    code, _, err = env("check", broken)
    assert code == 1 and f"{broken} does not run: no luck" in err


def test_list_and_prune(env, pack, tmp_path):  # noqa: F811
    wheel = write_wheel(tmp_path)
    (tmp_path / "requirements.txt").write_text(f"--no-index\n./{wheel.name}\n")
    env("build", pack())
    env("build", tmp_path / "requirements.txt")
    _, out, _ = env("list")
    assert len(out.splitlines()) == 3 and f"  {tmp_path}/env.tar.gz\n" in out and "requirements-" in out
    assert out.splitlines()[-1].startswith(f"2 environment(s) in {tmp_path}/cache, ")
    assert "0 B freed" in env("prune", "--older-than", "1d")[1]
    assert env("prune", "--dry-run")[1].count("would be removed") == 2
    assert env("prune")[1].count("  removed  Python") == 2
    assert env("list")[1].startswith("0 environment(s)")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["build", "/nowhere"], "Failed to get the canonical path for /nowhere."),
        (["prune", "--older-than", "soon"], "'soon' is not an age such as 12h, 30d or 8w"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        ([], "Try 'tisfast env --help'"),
    ],
)
def test_what_is_wrong_is_told(capsys, tmp_path, arguments, why):
    assert main(["env", *arguments]) == 1
    assert why in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_told(capsys, pack, tmp_path):  # noqa: F811
    (tmp_path / "file").write_text("")
    assert main(["env", "build", str(pack()), f"--environment-cache-dir={tmp_path}/file/cache"]) == 1
    why = capsys.readouterr().err
    assert "tisfast env build failed: " in why and f"may {tmp_path}/file/cache be written by this user?" in why


def test_build_for_a_backend(env, tmp_path):
    folder = tmp_path / "backends/greet"
    folder.mkdir(parents=True)
    (folder / "backend.py").touch()
    (folder / "requirements.txt").write_text(f"--no-index\n{write_wheel(folder)}\n")
    named = ("--backend", "greet", "--backend-directory", tmp_path / "backends")
    code, out, err = env("build", *named)
    assert code == 0 and out.startswith(str(tmp_path / "cache/requirements-"))
    assert f"installing requirements {folder / 'requirements.txt'}" in err
    assert env("build", *named)[1] == out and env("check", *named)[0] == 0


@pytest.mark.parametrize("arguments", [(), ("here", "--backend=greet")])
def test_build_takes_a_path_or_a_backend(env, arguments):
    code, _, err = env("build", *arguments)
    assert code == 1 and "takes a path or --backend NAME" in err
