"""From what a model names to an environment in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.environments.packing import pythons, write_tar, write_zip
from tests.environments.wheels import write_wheel
from tisfast.environments import install
from tisfast.environments import interpreters as finding
from tisfast.environments.build import BuildContext, build, known_key
from tisfast.environments.build_errors import EnvironmentFailed, NoRoom
from tisfast.environments.environment_kind import recognise


def prepared(context, path: Path, told, python: str = ""):
    return build(context, recognise(path, str(path), python), told)


def test_an_archive_is_unpacked_once_wherever_it_lies(context, pack, told, tmp_path):
    path = pack({"lib/data.txt": "1"})
    entry = prepared(context, path, told)
    assert (context.cache.home(entry.key) / "lib/data.txt").read_text() == "1"
    assert told == [f"reading {path} ({path.stat().st_size} B)"]
    environment = recognise(path, "")
    assert known_key(context, environment) == entry.key
    copy = shutil.copy(path, tmp_path / "copy.tgz")
    before = (context.cache.home(entry.key)).stat().st_ino
    assert prepared(context, Path(copy), told) == entry
    assert context.cache.home(entry.key).stat().st_ino == before
    assert entry.python.count(".") == 2 and entry.files == 3


def test_another_content_is_another_environment(context, pack, told):
    first = prepared(context, pack({"lib/data.txt": "1"}), told)
    second = prepared(context, pack({"lib/data.txt": "2"}), told)
    assert first.key != second.key and context.cache.find(first.key) is not None


def test_a_failed_attempt_leaves_nothing_and_the_next_one_mends_it(context, pack, told):
    environment = recognise(pack({"bin/conda-unpack": "import sys; print('cannot'); sys.exit(3)"}), "")
    why = r"bin/conda-unpack of .*/env.tar.gz failed: it ended with code 3.*\ncannot"
    with pytest.raises(EnvironmentFailed, match=why):
        build(context, environment, told)
    assert list(context.cache.entries()) == []
    (context.cache.begin(known_key(context, environment)) / "half").write_text("")  # as if killed in the middle
    fine = recognise(pack({"bin/conda-unpack": "print('fine')"}), "")
    entry = build(context, fine, told)
    assert context.cache.find(entry.key) and not (context.cache.home(entry.key) / "half").exists()


def test_a_program_that_finds_no_room_is_told_as_such(context, pack, told):
    """uv, pip and conda-unpack write, too."""
    with pytest.raises(NoRoom, match="no space is left for environments in .*; make room"):
        prepared(context, pack({"bin/conda-unpack": "import os, sys; sys.exit(f'pip: {os.strerror(28)}')"}), told)
    assert list(context.cache.entries()) == []


def test_conda_unpack_runs_where_the_environment_stays(context, told, tmp_path):
    found = [*pythons().values()]  # oldest first; where there is only one, it is packed in both ways
    for path in (write_tar(tmp_path / "env.tar", found[0]), write_zip(tmp_path / "env.zip", found[-1])):
        entry = prepared(context, path, told)
        home = context.cache.home(entry.key)
        assert (home / "lib/greeting.txt").read_text() == f"I live in {home}\n"
        assert subprocess.run([home / "bin/greet"], capture_output=True, text=True, check=True).stdout == "hello\n"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"bin/python3.x": "#!/bin/sh\necho 'GLIBC_2.99 not found' >&2; exit 1\n"},
         "does not run on this machine: .*GLIBC_2.99 not found; pack it on a machine of the same kind"),
        ({"bin/python3.x": "#!/bin/sh\necho '[\"pypy\", [3, 10, 1], \"x\", \"a\", \"b\"]'\n"},
         "is pypy 3.10.1; models run under CPython 3.8 or newer"),
        ({"bin/python3.x": "#!/bin/sh\necho '[\"cpython\", [3, 7, 1], \"x\", \"a\", \"b\"]'\n"}, "is cpython 3.7.1"),
    ],
)  # fmt: skip
def test_interpreters_that_cannot_serve(context, pack, told, files, why):
    with pytest.raises(EnvironmentFailed, match=why):
        prepared(context, pack(files), told)
    assert list(context.cache.entries()) == []


def test_an_archive_of_the_folder_itself_is_told(context, tmp_path, told):
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python").write_text("")
    subprocess.run(["tar", "-C", tmp_path, "-czf", tmp_path / "env.tar.gz", "env"], check=True)
    with pytest.raises(EnvironmentFailed, match="holds no bin/python3 .*; pack what is in env, not the folder itself"):
        prepared(context, tmp_path / "env.tar.gz", told)


def test_an_archive_that_changes_meanwhile_is_told(context, pack, monkeypatch):
    path = pack()
    with pytest.raises(EnvironmentFailed, match="changed while it was read; load the model again"):
        prepared(context, path, lambda text: os.utime(path, (1, 1)))
    assert list(context.cache.entries()) == []


def test_activation_scripts_of_the_environment_are_heard(context, pack, told):
    path = pack({
        "bin/activate": 'for script in "$0"/etc/conda/activate.d/*.sh; do . "$script"; done\n',
        "etc/conda/activate.d/gdal.sh": 'export GDAL_DATA="$0/share/gdal"\n',
    })  # fmt: skip
    entry = prepared(context, path, told)
    assert dict(entry.variables) == {"GDAL_DATA": f"{context.cache.home(entry.key)}/share/gdal"}


@pytest.fixture(params=["uv", "pip"])
def tool(request, monkeypatch):
    """With uv, and without."""
    if request.param == "pip":
        for module in ("tisfast.environments.build", "tisfast.environments.install"):
            monkeypatch.setattr(f"{module}.find_uv", lambda: None)
    elif install.find_uv() is None:
        pytest.skip("there is no uv")
    return request.param


def test_requirements_are_installed_for_the_python_that_is_asked_for(context, tool, tmp_path, told):
    wheel = write_wheel(tmp_path)
    (tmp_path / "requirements.txt").write_text(f"--no-index\n./{wheel.name}\n")
    version = list(pythons())[0]
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    asked = BuildContext(context.cache, str(root))
    entry = prepared(asked, tmp_path / "requirements.txt", told, version)
    assert entry.python.startswith(f"{version}.") and entry.kind == "requirements"
    python = context.cache.interpreter(entry.key)
    command = [python, "-I", "-c", "import greeting; print(greeting.WORD)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "hello\n"
    assert f"with {tool}" in told[0]
    assert prepared(asked, tmp_path / "requirements.txt", told, version) == entry
    write_wheel(tmp_path, code="WORD = 'goodbye'\n")
    assert known_key(asked, recognise(tmp_path / "requirements.txt", "", version)) != entry.key
    other = BuildContext(context.cache, str(root), (("PIP_INDEX_URL", "https://example.org"),))
    assert known_key(other, recognise(tmp_path / "requirements.txt", "", version)) != entry.key


def test_hashes_of_a_lock_are_demanded(context, tmp_path, told):
    wheel = write_wheel(tmp_path)
    line = f"greeting @ file://{wheel} --hash=sha256:{'0' * 64}\n"
    (tmp_path / "requirements.txt").write_text(f"--no-index\n{line}")
    with pytest.raises(EnvironmentFailed, match="(?is)could not be built for Python .*it printed:.*hash"):
        prepared(context, tmp_path / "requirements.txt", told)


def test_the_end_of_what_a_failing_installation_printed_is_told(context, tmp_path, told):
    (tmp_path / "requirements.txt").write_text("--no-index\nno-such-package==7\n")
    with pytest.raises(EnvironmentFailed) as caught:
        prepared(context, tmp_path / "requirements.txt", told)
    text = str(caught.value)
    assert f"the environment of {tmp_path}/requirements.txt could not be built for Python" in text
    assert "no-such-package" in text and list(context.cache.entries()) == []


def test_a_lock_file_needs_uv(context, tmp_path, told, monkeypatch):
    monkeypatch.setattr("tisfast.environments.build.find_uv", lambda: None)
    (tmp_path / "pylock.toml").write_text('lock-version = "1.0"\ncreated-by = "test"\npackages = []\n')
    with pytest.raises(EnvironmentFailed, match="pylock.toml is installed by uv, which was not found; pip install uv"):
        prepared(context, tmp_path / "pylock.toml", told)


def test_a_lock_file_is_installed_by_uv(context, tmp_path, told):
    if install.find_uv() is None:
        pytest.skip("there is no uv")
    wheel = write_wheel(tmp_path)
    (tmp_path / "pylock.toml").write_text(
        f'lock-version = "1.0"\ncreated-by = "test"\n[[packages]]\nname = "greeting"\nversion = "1.0"\n'
        f'archive = {{ path = "{wheel.name}", hashes = {{ sha256 = "{_sha256(wheel)}" }} }}\n'
    )
    entry = prepared(context, tmp_path / "pylock.toml", told)
    assert list(context.cache.home(entry.key).glob("lib/python3.*/site-packages/greeting.py"))


def _sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_pythons_that_are_not_there(tmp_path):
    with pytest.raises(EnvironmentFailed, match="no Python 3.99 was found: neither on PATH, nor with pyenv in .*;"):
        finding.find("3.99", str(tmp_path), None)
    with pytest.raises(EnvironmentFailed, match="/nowhere/python does not run"):
        finding.find("/nowhere/python", "", None)


def test_a_full_disk_is_told_and_leaves_nothing(pack, told, tmp_path):
    """A file system of one megabyte, where we may make one."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        from tisfast.environments.cache import EnvironmentCache

        context = BuildContext(EnvironmentCache(small / "cache"))
        path = pack({"lib/big": os.urandom(600_000).hex()})
        with pytest.raises(NoRoom, match="no space is left for environments in .*small/cache.*--environment-cache-dir"):
            prepared(context, path, told)
        assert list(context.cache.entries()) == [] and shutil.disk_usage(small).free > 900_000
    finally:
        subprocess.run(["umount", small], check=True)
