"""Both servers with a response cache: the same answers, counts, metrics; and where they differ."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.oracle.alike import differences
from tests.oracle.cases.grpc_calls import infer as grpc_infer
from tests.oracle.cases.grpc_calls import tensor as grpc_tensor
from tests.oracle.cases.table import Request, post, tensor
from tests.oracle.exchange import converse
from tests.oracle.grpc_exchange import alike, ask
from tests.oracle.readings import Exposition
from tests.oracle.servers import Servers, pair

FLAGS = ("--cache-config=local,size=1048576", "--metrics-config=summary_latencies=true")
MODEL = "kept"
COUNTED = ("nv_cache_num_hits_per_model", "nv_cache_num_misses_per_model")


def infer(*values: float, **more: Any) -> Request:
    return post(MODEL, {"inputs": [tensor("INPUT0", "FP32", [len(values)], list(values))], **more})


CONVERSATION = (
    infer(1, 2), infer(1, 2), infer(1, 2, id="another"), infer(1, 3), infer(1), infer(1, 2),
    infer(1, 2, outputs=[{"name": "OUTPUT0", "parameters": {"classification": 1}}, {"name": "CALLS"}]),
    infer(*range(1000)), infer(*range(1000)),
)  # fmt: skip


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Servers, Servers]]:
    with pair(*FLAGS) as servers:
        for each in servers:
            converse(each.get().http, CONVERSATION)
        yield servers


def stats(servers: Servers) -> dict[str, Any]:
    (answer,) = converse(servers.get().http, (Request("GET", f"/v2/models/{MODEL}/stats"),))
    (found,) = json.loads(answer.body)["model_stats"]
    return {
        **{name: found[name] for name in ("inference_count", "execution_count")},
        **{name: tally["count"] for name, tally in found["inference_stats"].items()},
        "batches": [entry["batch_size"] for entry in found["batch_stats"]],
    }


def scraped(servers: Servers) -> Exposition:
    connection = http.client.HTTPConnection("localhost", servers.get().metrics, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return Exposition(text.replace(f'model="{MODEL}"', 'model="add_sub"'))


def test_counts(both: tuple[Servers, Servers]) -> None:
    theirs, ours = map(stats, both)
    assert ours == theirs
    assert (ours["success"], ours["cache_hit"], ours["cache_miss"]) == (9, 5, 4)


def test_metrics(both: tuple[Servers, Servers]) -> None:
    theirs, ours = map(scraped, both)
    about = {name: value for name, value in theirs.about.items() if name.startswith("nv_cache")}
    assert {name: value for name, value in ours.about.items() if name.startswith("nv_cache")} == about
    assert len(about) == 14
    names = [name for name in ours.about if name in theirs.about]
    assert names == [name for name in theirs.about if name in ours.about]
    counted = [key for key in theirs.samples if key[0] in COUNTED]
    assert {key: ours.samples[key] for key in counted} == {key: theirs.samples[key] for key in counted}


def test_answers(both: tuple[Servers, Servers]) -> None:
    theirs, ours = (converse(servers.get().http, CONVERSATION) for servers in both)
    assert differences(theirs, ours) == {}


def test_grpc_gets_what_http_left(both: tuple[Servers, Servers]) -> None:
    raw = b"\0\0\x80\x3f\0\0\0\x40"
    inputs = [grpc_tensor("INPUT0", (2,), "FP32")]
    call = grpc_infer("a hit", "19.05", model=MODEL, inputs=inputs, raw_input_contents=[raw])
    theirs, ours = (ask(servers.get().grpc, call) for servers in both)
    assert alike(theirs, ours)


# ---- where they differ, and why


def last(servers: Servers, *requests: Request) -> dict[str, Any]:
    answer = converse(servers.get().http, requests)[-1]
    found: dict[str, Any] = json.loads(answer.body)
    return {"status": answer.status, **found}


def test_an_error_is_kept_as_an_empty_answer_by_triton_and_not_by_us(both: tuple[Servers, Servers]) -> None:
    theirs, ours = (last(servers, infer(-1), infer(-1)) for servers in both)
    assert (theirs["status"], theirs["outputs"]) == (200, [])
    assert (ours["status"], ours["error"]) == (500, "bad luck")


def test_requested_outputs_are_part_of_our_key(both: tuple[Servers, Servers]) -> None:
    asked = infer(7, outputs=[{"name": "CALLS"}]), infer(7)
    theirs, ours = (last(servers, *asked) for servers in both)
    assert [each["name"] for each in theirs["outputs"]] == ["CALLS"]
    assert [each["name"] for each in ours["outputs"]] == ["OUTPUT0", "CALLS"]


def test_parameters_are_part_of_our_key(both: tuple[Servers, Servers]) -> None:
    asked = infer(8, parameters={"p": 1}), infer(8, parameters={"p": 2})
    for servers, same in zip(both, (True, False), strict=True):
        one, other = (json.loads(answer.body)["outputs"] for answer in converse(servers.get().http, asked))
        assert (one == other) == same
