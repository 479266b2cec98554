"""The command: its table, its exit codes, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

import pytest

pytest.importorskip("onnxruntime")

from tests.convert.made_models import network, too_large_for_fp16  # noqa: E402
from tests.waiting import wait_until  # noqa: E402
from tisfast import cli  # noqa: E402
from tisfast.local_server import ROOT  # noqa: E402

SHORT = ["--seconds", "0.1", "--concurrency", "1", "--target", "onnx"]


def command(*arguments: object) -> int:
    return cli.main(["convert", *map(str, arguments)])


def test_the_table_has_all_tries_and_the_best(tmp_path, capsys):
    assert command(network(tmp_path), "-o", tmp_path / "out", *SHORT) == 0
    told = capsys.readouterr().out
    lines = told.splitlines()
    assert lines[0].split()[:2] == ["format", "result"] and lines[1].startswith("onnx fp32") and "ok" in lines[2]
    assert "Compared with the source: 8 samples, alone and in batches of 8." in told
    assert "Note: the samples are random numbers" in told and "Best: onnx fp" in told
    assert f"Written: {tmp_path / 'out' / 'net'}; serve it with: tisfast serve --model-repository" in told
    # What it has written before is replaced.
    assert command(network(tmp_path), "-o", tmp_path / "out", *SHORT) == 0


def test_a_constraint_that_nothing_holds_has_its_own_exit_code(tmp_path, capsys):
    assert command(too_large_for_fp16(tmp_path), "-o", tmp_path / "out", *SHORT, "--precision", "fp16") == 3
    told = capsys.readouterr().out
    assert "onnx fp16: wrong: output 'y' of sample 0" in told
    assert "Nothing was chosen: no format could be made whose answers are the source's." in told


def test_what_is_wrong_is_a_sentence(tmp_path, capsys):
    for arguments, said in [
        ([tmp_path / "nix.onnx", "-o", tmp_path], "nix.onnx: there is no such file"),
        ([network(tmp_path), "-o", tmp_path, "--max-latency", "soon"], "'soon' is no number"),
        ([network(tmp_path)], "the following arguments are required: -o"),
        ([network(tmp_path), "-o", tmp_path, "--nix"], "unrecognized arguments: --nix"),
    ]:
        assert command(*arguments) == 1
        assert said in capsys.readouterr().err


INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from tisfast.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("moment", ["itself", "measured"])
def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path, moment):
    """While a framework runs, and while a server is measured."""
    arguments = ["convert", str(network(tmp_path)), "-o", str(tmp_path / "out"), "--seconds", "60"]
    with tempfile.TemporaryDirectory(prefix="tf") as scratch:  # sockets have short paths
        with subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, *arguments],
            cwd=ROOT, env={**os.environ, "TMPDIR": scratch}, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert any(moment in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
        assert process.returncode == 130 and "tisfast: interrupted: no model was written" in rest, rest
        assert not (tmp_path / "out").exists()
        wait_until(lambda: not os.listdir(scratch), lambda: str(os.listdir(scratch)))
