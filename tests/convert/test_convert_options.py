"""Options outside of their bounds are refused by name, before anything runs."""

from __future__ import annotations

import math
import os

import pytest

pytest.importorskip("onnxruntime")

from tests.convert.made_models import network  # noqa: E402
from tisfast import cli  # noqa: E402
from tisfast.convert import convert  # noqa: E402
from tisfast.errors import BadRequest  # noqa: E402


@pytest.mark.parametrize(
    ("flag", "values", "said"),
    [
        ("--seconds", ["inf", "nan", "0", "-1", "1e9"], "must be a number from 0.1 to 3,600"),
        ("--step-seconds", ["inf", "nan", "0", "1e9"], "must be a number from 1 to 86,400"),
        ("--atol", ["inf", "nan", "-1", "1e10"], "must be a number from 0 to 1e+09"),
        ("--rtol", ["inf", "nan", "-1", "1e10"], "must be a number from 0 to 1e+09"),
        ("--max-latency", ["inf", "nan", "-1", "0", "1e10"], "must be a number from 0.001 to 3.6e+06"),
        ("--min-throughput", ["inf", "nan", "-1", "0", "1e10"], "must be a number from 0.001 to 1e+09"),
        ("--max-batch-size", ["0", "-1", "1000000000"], "give a whole number from 1 to 65536"),
        ("--concurrency", ["0", "-1", "1000000", "1,0"], "give a whole number from 1 to 1024"),
        ("--concurrency", [",".join(["1"] * 17)], "has 17 numbers: give 1 to 16"),
        ("--concurrency", ["", "1,", "2.5"], "is no number"),
        ("--precision", ["", ","], "names none: there are fp32 and fp16"),
        ("--target", ["", ","], "names none: there are pt2, "),
        ("--output", [""], "-o is empty: name a folder"),
        ("--name", ["", "/tmp/x", "../x", "..", ".", ".x", "a/b", "a\\b", "a\nb", "x" * 256], "is no name of a model"),
        ("--name", ["x" * 250], "File name too long"),
    ],
)
def test_the_command_names_the_flag_and_the_limit(tmp_path, capsys, flag, values, said):
    source = network(tmp_path)
    for value in values:
        assert cli.main(["convert", str(source), "-o", str(tmp_path / "a" / "out"), f"{flag}={value}"]) == 1, value
        told = capsys.readouterr().err
        assert said in told and "..." not in told.split(said)[0].replace(repr(value), ""), told
        assert os.listdir(tmp_path) == ["net.onnx"]


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("seconds", [math.inf, "1", True, None, 10**400], "--seconds is"),
        ("max_batch_size", [2.5, True, "8", None], "--max-batch-size is"),
        ("concurrency", [8, "8", (1.5,), (None,), ()], "--concurrency"),
        ("targets", ["onnx", 7], "--target is"),
        ("targets", [(), []], "--target names none"),
        ("targets", [["onnx", ["onnx"]], [{}]], "--target has"),
        ("precisions", [[None], [b"fp32"]], "--precision has"),
        ("max_latency_ms", [0, "1"], "--max-latency is"),
        ("told", [None, "print"], "told is .*: give a function"),
        ("verify", [True, False], "verify is .*: give a function"),
        ("output", [""], "-o is empty"),
        ("name", [7, b"net"], "--name"),
    ],
)
def test_from_python_types_are_checked_too(tmp_path, name, values, said):
    for value in values:
        with pytest.raises(BadRequest, match=said):
            convert(network(tmp_path), **{name: value})
