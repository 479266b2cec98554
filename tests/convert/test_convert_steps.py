"""Steps in processes of their own: whatever a framework does, there is a reason, and it ends."""

from __future__ import annotations

import ast
import errno
import os
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

from tests.waiting import has_ended, wait_until
from tisfast.convert import steps
from tisfast.convert.step_nursery import StepNursery
from tisfast.convert.steps import StepFailed, shortened
from tisfast.errors import Unavailable
from tisfast.local_server import ROOT

FAULTY = "tests.convert.faulty_steps"


GARBAGE = "before there was a result"


def run_step(name, request, folder, seconds):
    nursery = StepNursery("", folder.parent)
    try:
        return steps.run_step(nursery, name, request, folder, seconds)
    finally:
        nursery.close()


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("crash", r"the framework crashed \(SIGSEGV\): terminate called after throwing"),
        ("leave", "LICENSE EXPIRED"),
        ("fail", "RuntimeError: Unsupported operator: Foo"),
    ],
)
def test_the_reason_is_the_frameworks(tmp_path, step, reason):
    with pytest.raises(StepFailed, match=reason):
        run_step(f"{FAULTY}.{step}", {}, tmp_path / "step", 60)


def test_a_step_loads_nothing_of_what_runs_the_conversion(tmp_path):
    """Each format has a step or two: half a second of each went into that."""
    files = [f"tisfast.convert.{each.stem}" for each in (ROOT / "tisfast" / "convert").glob("*_steps.py")]
    assert "tisfast.convert.torch_steps" in files
    modules = run_step(f"{FAULTY}.loaded", {"files": files}, tmp_path / "step", 60)["modules"]
    assert "tisfast.convert.steps" in modules
    assert not [each for each in modules if each.startswith(("tisfast.bench", "tisfast.convert.conversion"))]


@pytest.mark.parametrize("status", [0, 3])
def test_an_end_without_a_result_is_a_failure_with_the_end_of_its_log(tmp_path, status):
    said = rf"exit status {status}\) {GARBAGE}; the last that it said: nothing more to do"
    with pytest.raises(StepFailed, match=said):
        run_step(f"{FAULTY}.leave_without_result", {"status": status}, tmp_path / "step", 60)
    with pytest.raises(StepFailed, match=GARBAGE):
        run_step(f"{FAULTY}.stop_the_program", {}, tmp_path / "other", 60)


@pytest.mark.parametrize(
    ("status", "text"), [(0, ""), (0, "[]"), (0, '{"found": 7}'), (3, '{"error": '), (3, '{"error": 7}')]
)
def test_garbage_in_place_of_a_result_is_a_failure(tmp_path, status, text):
    with pytest.raises(StepFailed):
        run_step(f"{FAULTY}.leave_garbage", {"status": status, "text": text}, tmp_path / "step", 60)


def test_a_step_that_hangs_is_ended(tmp_path):
    """It is so far that it can hang: its number is there."""
    seconds = 8
    with pytest.raises(StepFailed, match=f"longer than {seconds} s; --step-seconds"):
        run_step(f"{FAULTY}.hang", {}, tmp_path / "step", seconds)
    assert not psutil.pid_exists(int((tmp_path / "step" / "pid").read_text()))


@pytest.mark.parametrize("hangs", [False, True])
def test_of_an_ended_step_nothing_stays(tmp_path, hangs):
    """Its processes, its temporary files, and its shared memory, which Python's own tracker removes."""
    folder = tmp_path / "step"
    if hangs:
        with pytest.raises(StepFailed, match="longer than 8 s"):
            run_step(f"{FAULTY}.litter", {}, folder, 8)
        left = ast.literal_eval((folder / "found").read_text())
    else:
        left = run_step(f"{FAULTY}.litter", {"folder": str(folder)}, folder, 60)
    assert len(left["pids"]) == 4 and not any(map(psutil.pid_exists, left["pids"]))
    assert left["file"].startswith(str(folder)) and not os.path.exists(left["file"])
    assert not os.path.exists(f"/dev/shm/{left['shared']}")


def test_of_a_step_that_crashed_nothing_stays(tmp_path):
    with pytest.raises(StepFailed, match=r"the framework crashed \(SIGSEGV\)"):
        run_step(f"{FAULTY}.leave_and_crash", {}, tmp_path / "step", 60)
    left = ast.literal_eval((tmp_path / "step" / "found").read_text())
    assert len(left) == 4 and not any(map(psutil.pid_exists, left))


def test_where_its_parent_is_killed_nothing_stays(tmp_path):
    program = f"from tests.convert.test_convert_steps import run_step; run_step('{FAULTY}.leave_and_hang', {{}}, P, 60)"
    program = f"from pathlib import Path; P = Path({str(tmp_path / 'step')!r}); {program}"
    found = tmp_path / "step" / "found"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as parent:
        wait_until(found.exists)
        left = [psutil.Process(pid) for pid in ast.literal_eval(found.read_text())]
        os.kill(parent.pid, signal.SIGKILL)
    assert len(left) == 5
    for each in left:
        wait_until(lambda each=each: has_ended(each))


def test_of_what_a_step_prints_the_end_is_kept_and_nothing_lies_on_disk(tmp_path):
    """64 MiB."""
    with pytest.raises(StepFailed, match=r"^x+ LICENSE EXPIRED$"):
        run_step(f"{FAULTY}.talk", {}, tmp_path / "step", 60)
    assert sum(each.stat().st_size for each in (tmp_path / "step").rglob("*")) < 1 << 16


def test_a_step_ends_where_the_ends_of_children_are_ignored(tmp_path):
    """As what a service manager has started may."""
    program = (
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); from pathlib import Path; "
        "from tests.convert.test_convert_steps import run_step; "
        f"print(run_step('{FAULTY}.echo', {{'a': 7}}, Path({str(tmp_path / 'step')!r}), 60))"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout == "{'a': 7}\n", ran.stderr


def test_a_process_that_cannot_be_started_is_a_sentence(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("tisfast.convert.step_nursery.subprocess.Popen", refused)
    with pytest.raises(Unavailable, match=r"no process could be started .* \(Resource temporarily un.*ulimit -u"):
        run_step(f"{FAULTY}.fail", {}, tmp_path / "step", 60)


def test_a_step_dies_with_its_parent(tmp_path):
    program = f"from tests.convert.test_convert_steps import run_step; run_step('{FAULTY}.hang', {{}}, P, 60)"
    program = f"from pathlib import Path; P = Path({str(tmp_path / 'step')!r}); {program}"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as parent:
        pid = tmp_path / "step" / "pid"
        wait_until(lambda: pid.exists() and pid.read_text())
        step = psutil.Process(int(pid.read_text()))
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: has_ended(step))


def test_of_a_long_reason_the_beginning_is_shown():
    assert shortened("a\n b") == "a b"
    assert shortened("begin" + "x" * 1000) == "begin" + "x" * 495 + "..."


def test_a_full_disk_is_told_in_place_of_what_a_framework_does_not_say(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("tisfast.convert.steps.shutil.disk_usage", lambda _: usage._replace(free=4096))
    with pytest.raises(StepFailed, match=r"temporary folder .* is full \(4096 bytes are free\).*set TMPDIR"):
        run_step(f"{FAULTY}.fail", {}, tmp_path / "step", 60)
