import errno
import fcntl
import os
import subprocess
import sys
import tempfile

import pytest

from tisfast import limits
from tisfast.errors import Internal
from tisfast.private_directory import sweep
from tisfast.processes.control_directory import ControlDirectory


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def abandoned(base, name: str):
    path = base / name
    path.mkdir(mode=0o700)
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
    lock = os.open(path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert sweep(base) == []
    os.close(lock)
    assert sweep(base) == [path]


def test_a_server_with_the_number_of_a_dead_one_sweeps_its_directory(base):
    path = abandoned(base, f"tisfast-{os.getpid()}-abc")
    directory = ControlDirectory()
    assert not path.exists()
    directory.remove()


def test_a_directory_that_is_swept_in_the_making_is_made_again(base, monkeypatch):
    made = []
    make = tempfile.mkdtemp

    def swept_once(**given):
        path = make(**given)
        made.append(path)
        if len(made) == 1:
            os.rmdir(path)
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", swept_once)
    directory = ControlDirectory()
    assert str(directory.path) == made[1]
    assert sweep(base) == []
    directory.remove()


def test_a_user_who_may_write_nowhere_hears_what_to_do(monkeypatch):
    def nowhere():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(Internal, match="no folder for the control socket: No usable temporary directory.*set TMPDIR"):
        ControlDirectory()


def test_a_folder_without_locks_says_what_to_do(base, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(Internal, match="can be locked: 16 tries were in vain; set TMPDIR"):
        ControlDirectory()
    assert limits.CONTROL_DIRECTORY_TRIES_MAX == 16


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
