import fcntl
import os
import subprocess
import sys
import tempfile

import pytest

from tisfast import limits
from tisfast.errors import Internal
from tisfast.processes.control_directory import ControlDirectory, sweep


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def abandoned(base, name: str, *, seconds_old: float = 2 * limits.CONTROL_ORPHAN_SECONDS):
    path = base / name
    path.mkdir(mode=0o700)
    (path / "control").touch()
    made = path.stat().st_mtime - seconds_old
    os.utime(path, (made, made))
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
    lock = os.open(path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert sweep(base) == []
    os.close(lock)
    assert sweep(base) == [path]


def test_a_directory_in_the_making_is_left_alone(base):
    abandoned(base, f"tisfast-{dead_pid()}-abc", seconds_old=0)
    assert sweep(base) == []


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
