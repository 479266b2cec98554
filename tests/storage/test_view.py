"""Folders that look like repositories."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tests.storage.servers import contents
from tisfast import limits
from tisfast.storage.blobs import Blobs
from tisfast.storage.view import Run, View, sweep

LOOK_SECONDS_MAX = 10


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
    view = View(tmp_path / "view", blobs)
    view.show("m", {"config.pbtxt": kept(blobs, "one"), "1/model.py": kept(blobs, "a")})
    old = (view.folder / "m").resolve()
    assert old.name == "m"
    view.show("m", {"config.pbtxt": kept(blobs, "two"), "2/model.py": kept(blobs, "b")})
    assert contents(view.folder) == {"m/config.pbtxt": "two", "m/2/model.py": "b"}
    assert contents(old) == {"config.pbtxt": "one", "1/model.py": "a"}
    view.hide("m")
    assert contents(view.folder) == {} and contents(old)


def test_the_change_has_no_moment_in_between(blobs, tmp_path):
    view = View(tmp_path / "view", blobs)
    files = [{"a": kept(blobs, text), "b": kept(blobs, text)} for text in ("one", "two")]
    view.show("m", files[0])
    seen, over, looked = set(), threading.Event(), threading.Event()

    def look():
        while not over.is_set():
            folder = (view.folder / "m").resolve(strict=True)
            seen.add(((folder / "a").read_text(), (folder / "b").read_text()))
            looked.set()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for number in range(limits.STORAGE_TREES_MAX * 20):
            looked.clear()
            view.show("m", files[number % 2])
            assert looked.wait(LOOK_SECONDS_MAX)  # one change within a look: what is older than two is deleted
    finally:
        over.set()
        looker.join()
    assert seen <= {("one", "one"), ("two", "two")}


def test_not_all_old_folders_are_kept(blobs, tmp_path):
    view = View(tmp_path / "view", blobs)
    for number in range(limits.STORAGE_TREES_MAX + 3):
        view.show("m", {"a": kept(blobs, str(number))})
    assert len(os.listdir(tmp_path / "view/trees")) == limits.STORAGE_TREES_MAX


def test_models_that_nobody_fetched_are_empty_folders(blobs, tmp_path):
    view = View(tmp_path / "view", blobs)
    view.show("m", {"a": kept(blobs, "x")})
    view.announce(["m", "n"])
    assert (view.folder / "n").is_dir() and contents(view.folder) == {"m/a": "x"}
    view.show("n", {"a": kept(blobs, "y")})
    assert contents(view.folder) == {"m/a": "x", "n/a": "y"}


def test_a_file_system_of_its_own_gets_copies(blobs, tmp_path):
    """/dev/shm has no hard links to /tmp."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if os.stat(elsewhere).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("/dev/shm and the temporary folder are one file system")
        view = View(Path(elsewhere, "view"), blobs)
        view.show("m", {"a": kept(blobs, "x")})
        assert contents(view.folder) == {"m/a": "x"}


def test_what_is_swept_from_the_cache_is_still_served(blobs, tmp_path):
    view = View(tmp_path / "view", blobs)
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


def test_folders_of_servers_that_are_gone_are_swept_and_no_others(blobs):
    run = Run(blobs.root)
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
