"""Both servers on ensembles: answers, errors, streams, counters, and what is said of wrong ones."""

# ruff: noqa: E501  (tables: one case, one line)
from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perf.oracle.server import Kind, Server
from tests.config import test_ensemble as wrong
from tests.oracle.alike import differences, normal
from tests.oracle.cases.grpc_calls import request as grpc_request
from tests.oracle.cases.grpc_calls import stream
from tests.oracle.cases.table import Request, post, tensor
from tests.oracle.exchange import Answer, converse
from tests.oracle.grpc_exchange import ask
from tests.oracle.readings import counts
from tests.oracle.servers import HERE

REPOSITORIES = [HERE.parents[1] / "examples/ensembles", HERE / "ensembles"]
IDENTITY = """import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""
FOUR = [3, 1, 2, 0]


def fp32(name: str, values: list[float] = FOUR, shape: tuple[int, ...] = (1, 4)) -> dict[str, Any]:
    return tensor(name, "FP32", shape, values)


def one(model: str, *inputs: dict[str, Any], outputs: Any = None, **more: Any) -> Request:
    wanted = {} if outputs is None else {"outputs": outputs}
    return post(model, {"inputs": list(inputs), **wanted, **more})


def generate(model: str, body: object, *, many: bool = True) -> Request:
    return Request("POST", f"/v2/models/{model}/generate{'_stream' if many else ''}", (), json.dumps(body).encode())


CLASSES = [{"name": "OUT", "parameters": {"classification": 2}}]
SEQUENCE = {"sequence_id": 5, "sequence_start": True, "priority": 3, "timeout": 77, "mine": "v", "number": 4}
CASES: dict[str, Request] = {
    "a chain": one("e_chain", fp32("IN"), id="x"),
    "a batch": one("e_chain", fp32("IN", list(range(8)), (2, 4))),
    "all outputs": one("e_wide", fp32("A"), fp32("B", [1, 1, 1, 1])),
    "one output": one("e_wide", fp32("A"), fp32("B"), outputs=[{"name": "COPY"}]),
    "an input is missing": one("e_wide", fp32("A")),
    "an unknown input": one("e_chain", fp32("FOO")),
    "an unknown output": one("e_chain", fp32("IN"), outputs=[{"name": "FOO"}]),
    "a wrong shape": one("e_chain", fp32("IN", [1, 2, 3], (1, 3))),
    "too large a batch": one("e_chain", fp32("IN", [0] * 36, (9, 4))),
    "a step raises": one("e_moody", fp32("IN", [1, 0, 0, 0]), id="x"),
    "a step answers with an error": one("e_moody", fp32("IN", [2, 0, 0, 0])),
    "an inner ensemble fails": one("e_nested", fp32("IN", [2, 0, 0, 0])),
    "an inner ensemble": one("e_nested", fp32("IN")),
    "labels of the step": one("e_named", fp32("IN"), outputs=CLASSES),
    "labels of its own": one("e_renamed", fp32("IN"), outputs=CLASSES),
    "no labels": one("e_chain", fp32("IN"), outputs=CLASSES),
    "an optional input": one("e_optional", fp32("A"), fp32("B")),
    "an optional input is missing": one("e_optional", fp32("A")),
    "a required input is missing": one("e_required", fp32("A")),
    "an optional tensor": one("e_between", fp32("A")),
    "an optional tensor is missing": one("e_between", fp32("A", [-1, 1, 1, 1])),
    "a required tensor": one("e_missing", fp32("A")),
    "a required tensor is missing": one("e_missing", fp32("A", [-1, 1, 1, 1]), id="x"),
    "an output": one("e_half", fp32("A")),
    "an output is missing": one("e_half", fp32("A", [-1, 1, 1, 1])),
    "a batch as a dimension": one("e_dims", fp32("IN", list(range(12)), (3, 4))),
    "too large a dimension": one("e_dims", fp32("IN", list(range(36)), (9, 4))),
    "into batches": one("e_single", fp32("IN", FOUR, (4,))),
    "out of a batch of one": one("e_plain", fp32("IN")),
    "out of a batch of two": one("e_plain", fp32("IN", list(range(8)), (2, 4))),
    "reshape": one("e_reshaped", fp32("IN", FOUR, (1, 2, 2))),
    "what a step is told": one("e_told", fp32("IN"), parameters=SEQUENCE, id="abc"),
    "what a step is told by default": one("e_told", fp32("IN")),
    "generate": generate("e_chain", {"IN": FOUR}, many=False),
    "generate a stream of one": generate("e_chain", {"IN": FOUR}),
    "a stream of none": generate("d_count", {"N": 0}),
    "a stream of three": generate("d_count", {"N": 3}),
    "a stream that fails": generate("d_count", {"N": -2}),
    "streams of a stream": generate("d_again", {"N": 3}),
    "a stream over infer": one("d_count", tensor("N", "INT32", [1], [2])),
    "config": Request("GET", "/v2/models/e_wide/config"),
    "config of a stream": Request("GET", "/v2/models/d_again/config"),
    "metadata": Request("GET", "/v2/models/e_reshaped"),
    "metadata of an optional input": Request("GET", "/v2/models/e_optional"),
    "ready": Request("GET", "/v2/models/e_nested/ready"),
    "example": generate("standardize", {"X": [1, 2, 3]}, many=False),
    "example that fails": generate("standardize", {"X": [2, 2, 2]}, many=False),
}  # fmt: skip

COUNTING_SECONDS_MAX = 30


def start(kind: Kind) -> Iterator[Server]:
    with Server(kind, REPOSITORIES) as server:
        yield server


@pytest.fixture(scope="module")
def their() -> Iterator[Server]:
    """The real one, on ensembles."""
    yield from start("triton")


@pytest.fixture(scope="module")
def our() -> Iterator[Server]:
    """Ours."""
    yield from start("tisfast")


def by_name(answer: Answer) -> Answer:
    """With outputs in the order of their names: Triton's order is that of its hash table."""
    try:
        body = json.loads(answer.body)
    except ValueError:
        return answer
    if "outputs" in body and "model_name" in body:
        body["outputs"].sort(key=lambda output: output["name"])
    if "ensemble_scheduling" in body:
        body["ensemble_scheduling"].pop("max_inflight_requests", None)
        for each in body["ensemble_scheduling"]["step"]:
            each.update({key: dict(sorted(each[key].items())) for key in ("input_map", "output_map")})
    return answer._replace(body=json.dumps(body).encode())


@pytest.mark.parametrize("case", CASES)
def test_both_servers_answer_alike(case: str, their: Server, our: Server) -> None:
    theirs, ours = (by_name(converse(server.http, (CASES[case],))[0]) for server in (their, our))
    assert differences([theirs], [ours]) == {}, (normal(theirs), normal(ours))


def test_what_a_stream_gives_before_it_fails_comes_first(their: Server, our: Server) -> None:
    """An error takes its turn here; there it overtakes responses that are still on their way."""
    (ours,) = converse(our.http, (generate("d_count", {"N": -2}),))
    events = [json.loads(line[6:]) for line in ours.body.decode().split("\n\n") if line]
    assert [each.get("OUT", each.get("error")) for each in events] == [0, 1, "in ensemble 'd_count', stream trouble"]


def test_the_words_of_a_stream(their: Server, our: Server) -> None:
    """There in the order in which they become ready, here in that of the text."""

    def words(server: Server) -> list[tuple[str, int]]:
        (answer,) = converse(server.http, (generate("words", {"TEXT": "one two three four"}),))
        events = [json.loads(line[6:]) for line in answer.body.decode().split("\n\n") if line]
        return [(each["CAPITALS"], each["LENGTH"]) for each in events]

    theirs, ours = words(their), words(our)
    assert sorted(theirs) == sorted(ours)
    assert [word for word, _ in ours] == ["ONE", "TWO", "THREE", "FOUR"]


def test_an_output_that_another_step_takes(their: Server, our: Server) -> None:
    """2.51 leaves its step out together with that other one, where only this output is asked for."""
    request = one("e_wide", fp32("A"), fp32("B"), outputs=[{"name": "TAKEN"}])
    (theirs,), (ours,) = (converse(server.http, (request,)) for server in (their, our))
    assert b"unexpected deadlock, at least one output is not set" in theirs.body
    assert (ours.status, json.loads(ours.body)["outputs"][0]["data"]) == (200, FOUR)


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("empty", [True, False])
def test_streams_over_grpc(number: int, empty: bool, their: Server, our: Server) -> None:
    parameters = {"triton_enable_empty_final_response": {"bool_param": empty}}
    inputs = [{"name": "N", "shape": [1], "datatype": "INT32"}]
    raw = [number.to_bytes(4, "little")]
    message = grpc_request("d_count", inputs=inputs, raw_input_contents=raw, parameters=parameters, id="x")
    theirs, ours = (ask(server.grpc, stream("d_count", message)) for server in (their, our))
    for each in theirs.messages:  # 2.51 leaves it out where there are no outputs
        each["infer_response"].setdefault("model_version", "1")
    assert ours == theirs


TRAFFIC: dict[str, tuple[str, ...]] = {
    "a chain": ("e_chain", "four"),
    "a batch": ("e_chain", "four"),
    "one output": ("e_wide", "four", "both"),
    "an inner ensemble": ("e_nested", "e_moody", "moody", "four"),
    "a step raises": ("e_moody", "moody", "four"),
    "an inner ensemble fails": ("e_nested", "e_moody"),
    "a stream of three": ("d_count",),
    "a wrong shape": ("e_chain",),
}


@pytest.mark.parametrize("case", TRAFFIC)
def test_requests_are_counted_alike(case: str, their: Server, our: Server) -> None:
    def grown(server: Server) -> dict[str, dict[str, int]]:
        before = {model: counted(server, model) for model in TRAFFIC[case]}
        converse(server.http, (CASES[case],))
        deadline = time.monotonic() + COUNTING_SECONDS_MAX
        while True:  # 2.51 counts a stream some time after its last response
            after = {model: counted(server, model) for model in TRAFFIC[case]}
            if after != before or case == "a wrong shape" or time.monotonic() > deadline:
                return {model: grown_by(before[model], after[model]) for model in TRAFFIC[case]}

    theirs, ours = grown(their), grown(our)
    for model, numbers in theirs.items():
        if model.startswith(("e_", "d_")) and "fail" in numbers and case != "a wrong shape":
            numbers["fail"] //= 2  # 2.51 counts an ensemble's failure twice
    assert ours == theirs


def grown_by(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {key: number - before.get(key, 0) for key, number in after.items() if number != before.get(key, 0)}


def counted(server: Server, model: str) -> dict[str, int]:
    (answer,) = converse(server.http, (Request("GET", f"/v2/models/{model}/stats"),))
    return counts(json.loads(answer.body)["model_stats"][0])


# ---- wrong ones


def broken(folder: Path) -> dict[str, str]:
    """A repository of every wrong ensemble of the configuration's tests; by name, what Triton says of it."""
    for model in wrong.MODELS.values():
        write_model(folder, model)
    expected = {}
    for number, (text, message) in enumerate([*wrong.WRONG.values(), *wrong.MISFITS.values()]):
        name = f"wrong{number}"
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(text)
        expected[name] = re.sub(r"\be\b", name, message)
    return expected


def write_model(folder: Path, model: Any) -> None:
    (folder / model.name / "1").mkdir(parents=True)
    (folder / model.name / "1/model.py").write_text(IDENTITY)
    parts = [f'backend: "python" max_batch_size: {model.max_batch_size}']
    kinds = {11: "TYPE_FP32", 8: "TYPE_INT32"}
    for role, specs in (("input", model.inputs), ("output", model.outputs)):
        for spec in specs:
            optional = " optional: true" if spec.optional else ""
            dims = ", ".join(map(str, spec.dims))
            parts.append(f'{role} {{ name: "{spec.name}" data_type: {kinds[spec.dtype]} dims: [ {dims} ]{optional} }}')
    if model.decoupled:
        parts.append("model_transaction_policy { decoupled: true }")
    (folder / model.name / "config.pbtxt").write_text("\n".join(parts))


def test_every_wrong_ensemble_is_refused_in_tritons_words(tmp_path: Path) -> None:
    expected = broken(tmp_path)
    with Server("triton", [tmp_path], ["--exit-on-error=false"], "/v2/health/live") as server:
        log = server.log(1 << 20)
    missing = {name: message for name, message in expected.items() if message not in log}
    assert missing == {}


def test_an_ensemble_fails_with_its_models_in_tritons_words(tmp_path: Path) -> None:
    write_model(tmp_path, wrong.MODELS["id8"])
    bad = tmp_path / "bad"
    write_model(tmp_path, type(wrong.MODELS["id8"])("bad", "1", 8, False, *_fields()))
    (bad / "1/model.py").write_text(
        IDENTITY + "    def initialize(self, args):\n        raise RuntimeError('no luck')\n"
    )
    ensembles = {
        "on_bad": wrong.ensemble(wrong.step("bad")),
        "on_nothing": wrong.ensemble(wrong.step("nothing")),
        "on_three": wrong.ensemble(wrong.step(more="model_version: 3")),
        "round1": wrong.ensemble(wrong.step("round2", {"IN": "IN"}, {"OUT": "OUT"})),
        "round2": wrong.ensemble(wrong.step("round1", {"IN": "IN"}, {"OUT": "OUT"})),
    }
    for name, text in ensembles.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(text)
    logs = []
    for kind in ("triton", "tisfast"):
        with Server(kind, [tmp_path], ["--exit-on-error=false"], "/v2/health/live") as server:
            logs.append(server.log(1 << 20))
    for message in (
        "ensemble 'on_bad' depends on 'bad' which has no loaded version. Model 'bad' loading failed with error: version 1 is at UNAVAILABLE state: Internal: RuntimeError: no luck",
        "ensemble on_nothing contains models that are not available or ambiguous: nothing",
        "ensemble 'on_three' depends on 'id8' whose required version 3 is not loaded.",
        "circular dependency between ensembles: round1 -> ... -> round2 -> round1",
    ):
        assert [message in log for log in logs] == [True, True], message


def _fields() -> tuple[list[Any], list[Any]]:
    return [("INPUT0", 11, (4,), False, False)], [("OUTPUT0", 11, (4,))]
