"""Steps in processes of their own: whatever a framework does, there is a reason, and it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.waiting import has_ended, wait_until
from tisfast.convert.steps import StepFailed, run_step, shortened
from tisfast.local_server import ROOT

FAULTY = "tests.convert.faulty_steps"


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


def test_a_step_that_hangs_is_ended(tmp_path):
    with pytest.raises(StepFailed, match="longer than 3 s; --step-seconds"):
        run_step(f"{FAULTY}.hang", {}, tmp_path / "step", 3)
    pid = tmp_path / "step" / "pid"
    assert not pid.exists() or not psutil.pid_exists(int(pid.read_text()))


def test_a_step_dies_with_its_parent(tmp_path):
    program = f"from tisfast.convert.steps import run_step; run_step('{FAULTY}.hang', {{}}, P, 60)"
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
