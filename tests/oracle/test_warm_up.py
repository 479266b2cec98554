"""Warm-up beside the real Triton: what the model is given, what is counted, what fails the load."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from perf.oracle.server import Kind, Server
from tests.oracle.cases.table import Request
from tests.oracle.exchange import converse

CODE: Final = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]
    def execute(self, requests):
        told = [[[t.name(), str(t.as_numpy().dtype), list(t.as_numpy().shape)] for t in r.inputs()] for r in requests]
        with open("TOLD/" + self.name, "a") as file:
            file.write(json.dumps(told) + "\\n")
        return [self.answer(r) for r in requests]
    def answer(self, r):
        BODY
"""
GOOD: Final = 'return pb_utils.InferenceResponse([pb_utils.Tensor("B", np.zeros([1] * (1 + BATCHES), "f4"))])'
SAYS_NO: Final = 'return pb_utils.InferenceResponse([], error=pb_utils.TritonError("not now"))'
FP32: Final = 'input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]'
STRINGS: Final = FP32.replace("FP32", "STRING")
ZEROS: Final = "data_type: TYPE_FP32 dims: [ 3 ] zero_data: true"
FILES: Final = {"ones": b"\0\0\x80?" * 3, "words": b"\3\0\0\0abc\1\0\0\0x", "word": b"\3\0\0\0abc"}


def sample(given: str = ZEROS, name: str = "A", batch_size: int = 1, count: int = 0) -> str:
    inputs = f'inputs {{ key: "{name}" value: {{ {given} }} }}' if given else ""
    return f'model_warmup [ {{ name: "s" batch_size: {batch_size} count: {count} {inputs} }} ]\n'


# name: (samples, body, max_batch_size, input)
MODELS: Final = {
    "plain": (sample(), GOOD, 0, FP32),
    "thrice": (sample(count=3), GOOD, 0, FP32),
    "skipped": (sample(batch_size=0), GOOD, 0, FP32),
    "batched": (sample(batch_size=3), GOOD, 4, FP32),
    "random": (sample("data_type: TYPE_FP32 dims: [ 3 ] random_data: true"), GOOD, 0, FP32),
    "from_file": (sample('data_type: TYPE_FP32 dims: [ 3 ] input_data_file: "ones"'), GOOD, 0, FP32),
    "strings": (sample('data_type: TYPE_STRING dims: [ 2 ] input_data_file: "words"'), GOOD, 0, STRINGS),
    "no_strings": (sample("data_type: TYPE_STRING dims: [ 2 ] random_data: true"), GOOD, 0, STRINGS),
    "empty": (sample("data_type: TYPE_FP32 dims: [ 0 ] zero_data: true"), GOOD, 0, FP32),
    "two": (sample() + sample("data_type: TYPE_FP32 dims: [ 5 ] zero_data: true", count=2), GOOD, 0, FP32),
    "says_no": (sample(), SAYS_NO, 0, FP32),
    "says_no_twice": (sample(batch_size=2), SAYS_NO, 4, FP32),
    "too_many": (sample(batch_size=3), GOOD, 2, FP32),
    "no_batches": (sample(batch_size=2), GOOD, 0, FP32),
    "wrong_type": (sample("data_type: TYPE_INT32 dims: [ 3 ] zero_data: true"), GOOD, 0, FP32),
    "wrong_shape": (sample("data_type: TYPE_FP32 dims: [ 2, 2 ] zero_data: true"), GOOD, 0, FP32),
    "variable": (sample("data_type: TYPE_FP32 dims: [ -1 ] zero_data: true"), GOOD, 0, FP32),
    "no_data": (sample("data_type: TYPE_FP32 dims: [ 3 ]"), GOOD, 0, FP32),
    "no_inputs": (sample(""), GOOD, 0, FP32),
    "few_strings": (sample('data_type: TYPE_STRING dims: [ 2 ] input_data_file: "word"'), GOOD, 0, STRINGS),
    "no_file": (sample('data_type: TYPE_FP32 dims: [ 3 ] input_data_file: "none"'), GOOD, 0, FP32),
}  # fmt: skip
# Where a warm-up fails once it runs, the real Triton often ends with a segmentation fault (says_no and too_many: 10 of
# 26 starts each), however many models load at once: each such model has a server of its own, started until it stays.
CRASHING: Final = ("says_no", "says_no_twice", "too_many", "no_batches")
CALM: Final = tuple(name for name in MODELS if name not in CRASHING)


class Loaded:
    """What one server says of these models once it has tried to load them all."""

    def __init__(self, kind: Kind, folder: Path, names: Sequence[str]) -> None:
        told = folder / kind
        for name in names:
            self._write(folder / f"models_{kind}" / name, *MODELS[name], told=told)
        flags = ["--exit-on-error=false", "--model-load-thread-count=8"]

        def forget() -> None:
            shutil.rmtree(told, ignore_errors=True)
            told.mkdir()

        models = folder / f"models_{kind}"
        with Server(kind, [models], flags, "/v2/health/live", before_start=forget) as server:
            requests = (Request("POST", "/v2/repository/index"), Request("GET", "/v2/models/stats"))
            index, stats = (json.loads(answer.body) for answer in converse(server.http, requests))
        self.index = {each["name"]: (each.get("state"), plain(each.get("reason", ""))) for each in index}
        self.counts = {each["name"]: counts(each) for each in stats["model_stats"]}
        self.told = {path.name: path.read_text() for path in told.iterdir()}

    @staticmethod
    def _write(model: Path, samples: str, body: str, batch: int, tensor: str, told: Path) -> None:
        (model / "1").mkdir(parents=True)
        code = CODE.replace("BODY", body.replace("BATCHES", str(int(batch > 0)))).replace("TOLD", str(told))
        (model / "1" / "model.py").write_text(code)
        output = 'output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]'
        group = "instance_group [ { kind: KIND_CPU } ]"
        (model / "config.pbtxt").write_text(
            f'backend: "python"\nmax_batch_size: {batch}\n{tensor}\n{output}\n{group}\n{samples}'
        )
        (model / "warmup").mkdir()
        for name, data in FILES.items():
            (model / "warmup" / name).write_bytes(data)


def counts(stats: dict[str, Any]) -> tuple[int, int, int]:
    """Inferences, executions, successes."""
    return stats["inference_count"], stats["execution_count"], stats["inference_stats"]["success"]["count"]


def plain(reason: str) -> str:
    """Without places, hints and folders, which are ours or the machine's."""
    reason = re.sub(r"(; [^\n]*)? \([^()\s]*config\.pbtxt:\d+:\d+\)", "", reason)
    reason = re.sub(r"\S*/models_\w+/", "", reason).replace("[request id: <id_unknown>] ", "")
    return reason.rstrip(" .")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded("tisfast", tmp_path_factory.mktemp("ours"), tuple(MODELS))


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded("triton", tmp_path_factory.mktemp("calm"), CALM)


@pytest.mark.parametrize("name", CALM)
def test_models_are_given_the_same_and_fare_alike(name: str, calm: Loaded, ours: Loaded) -> None:
    fare_alike(name, calm, ours)


@pytest.mark.parametrize("name", CRASHING)
def test_models_that_crash_the_real_one_fare_alike_when_they_do_not(name: str, tmp_path: Path, ours: Loaded) -> None:
    fare_alike(name, Loaded("triton", tmp_path, (name,)), ours)


def fare_alike(name: str, theirs: Loaded, ours: Loaded) -> None:
    assert ours.index[name] == theirs.index[name]
    assert ours.told.get(name) == theirs.told.get(name)
    assert ours.counts.get(name) == theirs.counts.get(name)
