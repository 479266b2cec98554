import fcntl
import os
import subprocess
import sys
import tempfile

import pytest

from tisfast import limits
from tisfast.errors import Internal
from tisfast.supervise.directory import LOCK, ControlDirectory, sweep


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def abandoned(base, name: str, *, lock: bool = True):
    path = base / name
    path.mkdir(mode=0o700)
    if lock:
        (path / LOCK).touch()
    (path / "control").touch()
    return path


def test_the_directory_is_private_and_goes(base):
    directory = ControlDirectory()
    assert directory.path.stat().st_mode & 0o777 == 0o700
    directory.remove()
    assert list(base.iterdir()) == []


def test_a_dead_server_s_directory_is_swept(base):
    path = abandoned(base, f"tisfast-{dead_pid()}-abc")
    assert sweep(base) == [path]
    assert not path.exists()


def test_a_living_server_s_directory_stays(base):
    directory = ControlDirectory()
    assert sweep(base) == []
    directory.remove()


def test_a_lock_protects_a_server_of_another_pid_namespace(base):
    path = abandoned(base, f"tisfast-{dead_pid()}-abc")
    with open(path / LOCK) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert sweep(base) == []


def test_a_directory_without_lock_is_swept_only_when_it_is_old(base):
    path = abandoned(base, f"tisfast-{dead_pid()}-abc", lock=False)
    assert sweep(base) == []
    old = path.stat().st_mtime - 2 * limits.CONTROL_ORPHAN_SECONDS
    os.utime(path, (old, old))
    assert sweep(base) == [path]


def test_what_is_not_ours_is_left_alone(base):
    abandoned(base, "tisfast-notapid-x")
    open_to_all = abandoned(base, f"tisfast-{dead_pid()}-x")
    open_to_all.chmod(0o755)
    (base / f"tisfast-{dead_pid()}-link").symlink_to(base)
    assert sweep(base) == []


def test_a_path_too_long_for_a_socket_says_what_to_do(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(Internal, match="set TMPDIR to a shorter path"):
        ControlDirectory()
    assert list(deep.iterdir()) == []
