"""Files that frameworks make of models' files: made once, kept whole, of a bounded size (artifact_cache.py)."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from tisfast_worker.artifact_cache import ArtifactCache, digest

from tests.workers.driver import WORKERS

SECONDS_MAX = 60
PROGRAM = f"""
import os, sys
sys.path.append({str(WORKERS)!r})
from tisfast_worker.artifact_cache import ArtifactCache
folder = sys.argv[1]

def make(path, content="whole"):
    with open(os.path.join(path, "file"), "w") as file:
        file.write(content)

def stop():
    print("here", flush=True)
    sys.stdin.readline()

"""


def make(content="whole"):
    """A function that makes one file."""
    return lambda folder: Path(folder, "file").write_text(content)


def never(folder):
    raise AssertionError("it is there")


def listed(folder):
    return sorted(each.name for each in Path(folder).iterdir() if each.name != ".locks")


def start(folder, code):
    """A process that runs PROGRAM and this code."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", PROGRAM + code, str(folder)], stdin=pipe, stdout=pipe, text=True)


def at_stop(folder, code):
    """Such a process, which has called stop()."""
    process = start(folder, code)
    assert process.stdout.readline() == "here\n"
    return process


def end(process):
    """Let it go on; returns what it printed since."""
    told, _ = process.communicate("go\n", SECONDS_MAX)
    assert process.returncode == 0
    return told


def kill(process):
    process.kill()
    process.communicate()


def test_many_processes_at_one_time_make_the_files_once(tmp_path):
    code = """
stop()
def made(path):
    print("made")
    make(path)
home, hold = ArtifactCache(folder).find("model-1", made)
assert open(os.path.join(home, "file")).read() == "whole"
"""
    processes = [at_stop(tmp_path, code) for _ in range(6)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert sorted(end(process) for process in processes) == [""] * 5 + ["made\n"]
    assert listed(tmp_path) == ["model-1"]


def test_who_uses_the_files_keeps_no_other_process_waiting_that_missed_them_before(tmp_path):
    code = """
isdir, seen = os.path.isdir, []
def isdir_and_stop(path):
    found = isdir(path)
    if path.endswith("model-1") and not seen:
        seen.append(path)
        stop()
    return found
os.path.isdir = isdir_and_stop
home, hold = ArtifactCache(folder).find("model-1", make)
stop()
"""
    processes = [at_stop(tmp_path, code) for _ in range(3)]  # each has seen that nothing is there
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:  # each has the files, while all others use them
        assert select.select([process.stdout], [], [], SECONDS_MAX)[0], "it still waits"
        assert process.stdout.readline() == "here\n"
    for process in processes:
        end(process)


HALF = """
def half(path):
    make(path, "half")
    stop()
    make(path)
ArtifactCache(folder).find("model-1", half)
"""


@pytest.mark.parametrize("then", ["model-1", "model-2"])
def test_what_a_killed_process_was_making_goes_with_the_next_that_makes(tmp_path, then):
    kill(at_stop(tmp_path, HALF))
    assert len(listed(tmp_path)) == 1
    home, hold = ArtifactCache(str(tmp_path)).find(then, make())
    assert Path(home, "file").read_text() == "whole" and listed(tmp_path) == [then]
    hold.close()


def test_what_another_process_is_making_stays(tmp_path):
    process = at_stop(tmp_path, HALF)
    ArtifactCache(str(tmp_path)).find("model-2", make())[1].close()
    end(process)
    assert listed(tmp_path) == ["model-1", "model-2"]
    assert (tmp_path / "model-1/file").read_text() == "whole"


def test_what_was_not_used_for_longest_goes_and_what_is_in_use_stays(tmp_path):
    cache = ArtifactCache(str(tmp_path), bytes_max=25)
    holds = {}
    for at, key in enumerate(("a-1", "b-1", "c-1")):
        home, holds[key] = cache.find(key, make("0123456789"))
        os.utime(home, (at, at))
        if key != "a-1":
            holds[key].close()
    assert listed(tmp_path) == ["a-1", "c-1"], "a-1 is older, and in use"
    holds["a-1"].close()
    cache.find("d-1", make("0123456789"))[1].close()
    assert listed(tmp_path) == ["c-1", "d-1"]


def test_a_process_that_is_killed_while_it_removes_leaves_no_half(tmp_path):
    code = """
cache = ArtifactCache(folder, bytes_max=1)
cache.find("a-1", make)[1].close()
unlink = os.unlink
def unlink_and_stop(*arguments, **options):
    unlink(*arguments, **options)
    stop()
os.unlink = unlink_and_stop
cache.find("b-1", make)
"""
    kill(at_stop(tmp_path, code))
    home, hold = ArtifactCache(str(tmp_path)).find("a-1", make("anew"))
    assert Path(home, "file").read_text() == "anew"
    hold.close()
    assert listed(tmp_path) == ["a-1", "b-1"]


def test_one_that_cannot_be_made_leaves_nothing(tmp_path):
    def fails(folder):
        make()(folder)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        ArtifactCache(str(tmp_path)).find("a-1", fails)
    assert listed(tmp_path) == []
    ArtifactCache(str(tmp_path)).find("a-1", make())[1].close()
    assert ArtifactCache(str(tmp_path)).find("a-1", never)[0] == str(tmp_path / "a-1")


def test_a_key_says_all_that_the_files_depend_on(tmp_path):
    def key(facts=("1.0",)):
        beside = [str(tmp_path / "weights"), str(tmp_path / "data/more")]
        return digest(facts, [str(tmp_path / "graph")], beside, str(tmp_path))

    (tmp_path / "data").mkdir()
    for name in ("graph", "weights", "data/more"):
        (tmp_path / name).write_bytes(b"content")
    seen = {key(), key(("1.1",))}
    for name in ("graph", "weights", "data/more"):
        (tmp_path / name).write_bytes(b"other" + name.encode())
        seen.add(key())
    assert len(seen) == 5 and key() in seen
