"""Folders that look like repositories."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tests.storage.servers import contents
from tisfast import limits
from tisfast.leases import lease
from tisfast.storage.blobs import Blobs
from tisfast.storage.repository_view import RepositoryView, RunFolder, sweep

LOOK_SECONDS_MAX = 60
ROOT = Path(__file__).parents[2]


@pytest.fixture
def blobs(tmp_path):
    found = Blobs(tmp_path / "cache")
    yield found
    found.close()


def kept(blobs, text):
    path = blobs.root / "partial/x"
    path.write_text(text)
    return blobs.adopt(path, hashlib.sha256(text.encode()).hexdigest())


def test_a_model_is_seen_whole_and_its_old_files_stay(blobs, tmp_path):
    view = RepositoryView(tmp_path / "view", blobs)
    view.show("m", {"config.pbtxt": kept(blobs, "one"), "1/model.py": kept(blobs, "a")})
    held = lease(view.folder / "m")
    old = held.folder
    assert old.name == "m"
    view.show("m", {"config.pbtxt": kept(blobs, "two"), "2/model.py": kept(blobs, "b")})
    assert contents(view.folder) == {"m/config.pbtxt": "two", "m/2/model.py": "b"}
    assert contents(old) == {"config.pbtxt": "one", "1/model.py": "a"}
    view.hide("m")
    view.tidy()
    assert contents(view.folder) == {} and contents(old)
    del held
    view.tidy()
    assert not os.listdir(tmp_path / "view/trees")


def test_the_change_has_no_moment_in_between(blobs, tmp_path):
    view = RepositoryView(tmp_path / "view", blobs)
    files = [{"a": kept(blobs, text), "b": kept(blobs, text)} for text in ("one", "two")]
    view.show("m", files[0])
    seen, over, looked = set(), threading.Event(), threading.Event()

    def look():
        while not over.is_set():
            held = lease(view.folder / "m")
            folder = held.folder
            seen.add(((folder / "a").read_text(), (folder / "b").read_text()))
            looked.set()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for number in range(80):
            looked.clear()
            view.show("m", files[number % 2])
            view.tidy()
            assert looked.wait(LOOK_SECONDS_MAX)
    finally:
        over.set()
        looker.join()
    assert seen <= {("one", "one"), ("two", "two")}


def test_old_folders_are_kept_while_something_is_loaded_from_them_and_no_longer(blobs, tmp_path):
    view = RepositoryView(tmp_path / "view", blobs)
    held = []
    for number in range(8):
        view.show("m", {"a": kept(blobs, str(number))})
        held.append(lease(view.folder / "m") if number in (0, 3) else None)
        view.tidy()
    assert len(os.listdir(tmp_path / "view/trees")) == 3
    assert [contents(each.folder) for each in held if each] == [{"a": "0"}, {"a": "3"}]
    del held, number
    view.tidy()
    assert os.listdir(tmp_path / "view/trees") == ["8"] and contents(view.folder) == {"m/a": "7"}


def test_other_processes_hold_trees_until_they_die(blobs, tmp_path):
    view = RepositoryView(tmp_path / "view", blobs)
    view.show("m", {"a": kept(blobs, "x")})
    code = (
        "import sys; from pathlib import Path; from tisfast.leases import lease\n"
        "held = lease(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(view.folder / "m")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout.readline() == b"held\n"
        view.hide("m")
        view.tidy()
        assert contents(tmp_path / "view/trees/1/m") == {"a": "x"}
        process.kill()
    view.tidy()
    assert not os.listdir(tmp_path / "view/trees")


def test_what_cannot_be_shown_leaves_nothing(blobs, tmp_path):
    view = RepositoryView(tmp_path / "view", blobs)
    view.show("m", {"a": kept(blobs, "x")})
    gone = kept(blobs, "y")
    blobs.path(gone.sha256).unlink()
    with pytest.raises(FileNotFoundError):
        view.show("m", {"a": kept(blobs, "x"), "b": gone})
    assert contents(view.folder) == {"m/a": "x"} and os.listdir(tmp_path / "view/trees") == ["1"]


def test_models_that_nobody_fetched_are_empty_folders(blobs, tmp_path):
    view = RepositoryView(tmp_path / "view", blobs)
    view.show("m", {"a": kept(blobs, "x")})
    view.announce(["m", "n"])
    assert (view.folder / "n").is_dir() and contents(view.folder) == {"m/a": "x"}
    assert lease(view.folder / "n") is None
    view.announce(["m", "n", "o"])
    view.announce(["n"])
    assert sorted(os.listdir(view.folder)) == ["m", "n"]
    view.show("n", {"a": kept(blobs, "y")})
    assert contents(view.folder) == {"m/a": "x", "n/a": "y"}


def test_a_file_system_of_its_own_gets_copies(blobs, tmp_path):
    """/dev/shm has no hard links to /tmp."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if os.stat(elsewhere).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("/dev/shm and the temporary folder are one file system")
        view = RepositoryView(Path(elsewhere, "view"), blobs)
        view.show("m", {"a": kept(blobs, "x")})
        assert contents(view.folder) == {"m/a": "x"}


def test_what_is_swept_from_the_cache_is_still_served(blobs, tmp_path):
    view = RepositoryView(tmp_path / "view", blobs)
    view.show("m", {"a": kept(blobs, "x")})
    assert blobs.sweep(set) == 1
    assert not list((blobs.root / "blobs").glob("*/*"))
    assert contents(view.folder) == {"m/a": "x"}


def test_nothing_is_swept_while_somebody_syncs(blobs):
    kept(blobs, "x")
    other = Blobs(blobs.root)
    other.hold()
    other.hold()
    other.release()
    assert blobs.sweep(set) == 0
    other.release()
    assert blobs.sweep(set) == 1
    other.close()


def test_what_killed_servers_left_is_swept_but_for_what_can_be_gone_on_with(blobs):
    key = "0123456789abcdef" * 2
    for name in (key, f"{key}.done", f"{key}-123-456", "tmp_k3y"):
        (blobs.root / "partial" / name).write_text("")
    blobs.sweep(set)
    assert sorted(os.listdir(blobs.root / "partial")) == [key, f"{key}.done"]


def test_folders_of_servers_that_are_gone_are_swept_and_no_others(blobs):
    run = RunFolder(blobs.root)
    orphan, young = blobs.root / "runs/1-orphan", blobs.root / "runs/2-young"
    for path in (orphan, young):
        (path / "k/models").mkdir(parents=True)
    old = time.time() - limits.STORAGE_ORPHAN_SECONDS - 10
    os.utime(orphan, (old, old))
    os.utime(run.path, (old, old))
    sweep(blobs.root / "runs")
    assert sorted(path.name for path in (blobs.root / "runs").iterdir()) == sorted([run.path.name, "2-young"])
    run.close()
    assert not run.path.exists()
    shutil.rmtree(young)
