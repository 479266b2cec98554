"""A folder that a program writes into a repository is there as a whole, or not at all."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tisfast.errors import TisError
from tisfast.repo.written_folder import write_folder

CONFIG = {"backend": "python", "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}]}


def test_a_folder_takes_the_place_of_the_one_before(tmp_path):
    folder = tmp_path / "models" / "m"
    write_folder(folder, CONFIG, {"1/model.py": b"1", "1/more/data": b"2"})
    write_folder(folder, CONFIG, {"3/model.py": b"3"})
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == ["models/m/3/model.py", "models/m/config.pbtxt"]
    assert 'name: "x"' in (folder / "config.pbtxt").read_text()


def test_what_cannot_be_written_leaves_the_one_before(tmp_path):
    folder = tmp_path / "m"
    write_folder(folder, CONFIG, {"1/model.py": b"1"})
    with pytest.raises(TisError, match="TYPE_FP33"):
        write_folder(folder, {"input": [{"name": "x", "data_type": "TYPE_FP33"}]}, {"1/model.py": b"2"})
    with pytest.raises(OSError, match="Is a directory"):
        write_folder(folder, CONFIG, {"1/model.py": b"2", "1": b""})
    assert [path.name for path in tmp_path.iterdir()] == ["m"] and (folder / "1/model.py").read_bytes() == b"1"


def test_what_a_writer_that_was_killed_has_left_hinders_nobody(tmp_path):
    folder = tmp_path / "m"
    write_folder(folder, CONFIG, {"1/model.py": b"1"})
    left = tmp_path / f".m.{os.getpid()}.old"  # of a process with the same number
    left.mkdir()
    (left / "config.pbtxt").touch()
    write_folder(folder, CONFIG, {"1/model.py": b"2"})
    assert (folder / "1/model.py").read_bytes() == b"2"


def test_threads_that_write_one_folder_do_not_hinder_each_other(tmp_path):
    folder = tmp_path / "m"

    def write(number: int) -> None:
        for _ in range(10):
            write_folder(folder, CONFIG, {f"1/{name}": b"%d" % number for name in ("model.py", "more.py")})

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write, number) for number in range(4)]:
            done.result(60)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert (folder / "1/model.py").read_bytes() == (folder / "1/more.py").read_bytes()


def test_a_folder_that_another_writer_puts_there_between_two_steps_is_replaced(tmp_path, monkeypatch):
    folder = tmp_path / "m"
    write_folder(folder, CONFIG, {"1/model.py": b"1"})
    rename, missed = Path.rename, []

    def renamed(path, target):
        if path == folder and not missed:  # it is not there for a moment, as another writer has moved it
            missed.append(path)
            raise FileNotFoundError(path)
        return rename(path, target)

    monkeypatch.setattr("tisfast.repo.written_folder.exchanged", lambda *_: False)  # a file system that cannot
    monkeypatch.setattr(Path, "rename", renamed)
    write_folder(folder, CONFIG, {"1/model.py": b"2"})
    assert missed and (folder / "1/model.py").read_bytes() == b"2"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


KILLED = """
import os, signal, sys
from pathlib import Path
from tisfast.repo.written_folder import written_folder

def ended(event, arguments):
    if event in ("shutil.rmtree", "os.rename"):  # what comes behind the exchange, and what came before there was one
        os.kill(os.getpid(), signal.SIGKILL)

with written_folder(Path(sys.argv[1])) as made:
    (made / "config.pbtxt").write_text("new")
    sys.addaudithook(ended)
"""


def test_a_writer_that_is_killed_leaves_a_whole_folder(tmp_path):
    folder = tmp_path / "m"
    write_folder(folder, CONFIG, {"1/model.py": b"1"})
    assert subprocess.run([sys.executable, "-c", KILLED, folder], check=False).returncode == -signal.SIGKILL
    assert (folder / "config.pbtxt").read_text() == "new" and os.listdir(folder) == ["config.pbtxt"]


def test_of_a_link_to_a_folder_the_link_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").touch()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m").symlink_to(tmp_path / "elsewhere")
    write_folder(tmp_path / "models" / "m", CONFIG, {"1/model.py": b"1"})
    assert os.listdir(tmp_path / "models") == ["m"] and not (tmp_path / "models" / "m").is_symlink()
    assert os.listdir(tmp_path / "elsewhere") == ["mine"]
