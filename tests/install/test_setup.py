"""setup.py as pip, make and the processes that it starts meet it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS_MAX: Final = 60


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with our backend and a descriptor set that is newer than its source."""
    shutil.copy(ROOT / "backend.py", tmp_path)
    requirement = '[project.optional-dependencies]\nprotoc = ["grpcio-tools"]\n'
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "a-tree"\nversion = "1"\n{requirement}')
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(packages=[])\n")
    proto = tmp_path / "tisfast/wire/proto"
    proto.mkdir(parents=True)
    for name, age in (("health.proto", 20), ("triton.desc", 10)):
        (proto / name).touch()
        os.utime(proto / name, (1_800_000_000 - age, 1_800_000_000 - age))
    return tmp_path


def asks_for_a_protobuf_compiler(tree: Path) -> bool:
    """Whether pip would install one before it builds a wheel of the tree."""
    code = "import backend; print(*backend.get_requires_for_build_wheel(), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=True, timeout=SECONDS_MAX
    )
    return any(line.startswith("grpcio-tools") for line in done.stdout.splitlines())


def test_a_tree_with_its_descriptor_set_needs_no_protobuf_compiler(tree: Path) -> None:
    assert not asks_for_a_protobuf_compiler(tree)


def test_a_tree_without_one_or_with_an_older_one_needs_a_protobuf_compiler(tree: Path) -> None:
    (tree / "tisfast/wire/proto/health.proto").touch()
    os.utime(tree / "tisfast/wire/proto/health.proto", (1_800_000_000, 1_800_000_000))
    assert asks_for_a_protobuf_compiler(tree)
    (tree / "tisfast/wire/proto/triton.desc").unlink()
    assert asks_for_a_protobuf_compiler(tree)


def test_a_source_archive_needs_none_whatever_its_times_are(tree: Path) -> None:
    """Who unpacks one may give its files any times."""
    (tree / "PKG-INFO").touch()
    os.utime(tree / "tisfast/wire/proto/health.proto", (1_800_000_000, 1_800_000_000))
    assert not asks_for_a_protobuf_compiler(tree)


@pytest.mark.parametrize("jobs", ["0", "many"])
def test_a_number_of_jobs_that_is_none_is_told(jobs: str) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=ROOT,
        env=os.environ | {"TISFAST_JOBS": jobs},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"TISFAST_JOBS is '{jobs}', and is to be how many modules are built at one time: 1 or more\n"


def test_a_process_that_the_build_starts_may_import_setup_py() -> None:
    """CPython 3.14 starts no forks: what translates modules beside others imports the main module, under this name."""
    code = "import runpy; runpy.run_path('setup.py', run_name='__mp_main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
