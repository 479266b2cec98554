"""Known traffic: statistics, metrics, and requests that meet in a queue or batch."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.oracle.again import again
from tests.oracle.cases.json_requests import BOTH
from tests.oracle.cases.table import post, tensor
from tests.oracle.exchange import Answer, Request, converse
from tests.oracle.readings import counts
from tests.oracle.servers import Servers

pytestmark = pytest.mark.alone

COUNTED_SECONDS_MAX = 30.0
GOOD = post("add_sub", {"inputs": BOTH})
WRONG_SHAPE = post("add_sub", {"inputs": [tensor("INPUT0", "FP32", [3], [1, 2, 3]), BOTH[1]]})
RAISES = post("misbehave", {"inputs": [tensor("INPUT0", "FP32", [1], [1])], "parameters": {"mode": "raises"}})
SAYS_NO = post("misbehave", {"inputs": [tensor("INPUT0", "FP32", [1], [1])], "parameters": {"mode": "error_not_found"}})
WIDE = post("batched", {"inputs": [tensor(n, "INT32", [3, 4], list(range(12))) for n in ("INPUT0", "INPUT1")]})


def ask(servers: Servers, *requests: Request) -> list[Answer]:
    return converse(servers.get().http, requests)


def at_once(servers: Servers, requests: Sequence[Request]) -> list[Answer]:
    """Each over a connection of its own, at the same time."""
    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(lambda request: ask(servers, request)[0], requests))


def statistics(servers: Servers, model: str, version: str = "") -> dict[str, Any]:
    place = f"/versions/{version}" if version else ""
    answer = ask(servers, Request("GET", f"/v2/models/{model}{place}/stats"))[0]
    assert answer.status == 200, answer.body
    return json.loads(answer.body)["model_stats"][-1]


def counted(servers: Servers, model: str, *requests: Request, expected: dict[str, int] | None = None) -> dict[str, int]:
    """How the counts of a model grew by some requests; read again for a while where that is not yet what is expected:
    Triton counts after it has answered.
    """
    before = counts(statistics(servers, model))
    ask(servers, *requests)
    until = time.monotonic() + COUNTED_SECONDS_MAX
    while True:
        after = counts(statistics(servers, model))
        grew = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
        if expected is None or grew == expected or time.monotonic() > until:
            return grew
        time.sleep(0.02)  # counting gives no event


@pytest.mark.parametrize(
    ("model", "requests"),
    [
        ("add_sub", [GOOD] * 5),
        ("add_sub", [WRONG_SHAPE] * 2),
        ("add_sub", [post("add_sub", b"{")]),
        ("misbehave", [RAISES] * 3),
        ("batched", [WIDE] * 4),
    ],
    ids=["good", "wrong shape", "bad JSON", "model raises", "batches of three"],
)
def test_statistics_count_alike(model: str, requests: list[Request], triton: Servers, tisfast: Servers) -> None:
    ours = counted(tisfast, model, *requests)
    assert ours == counted(triton, model, *requests, expected=ours)


def test_an_error_that_the_model_returns_counts_as_a_failure_here(triton: Servers, tisfast: Servers) -> None:
    """Deliberate: the client got an error.  Triton counts it among the successes, so an alert on failures is silent."""
    successes = dict.fromkeys(
        ("inference_count", "execution_count", "success", "queue", "compute_input", "compute_infer", "compute_output",
         "batch 1 compute_input", "batch 1 compute_infer", "batch 1 compute_output"), 3)  # fmt: skip
    assert counted(triton, "misbehave", *[SAYS_NO] * 3, expected=successes) == successes
    ours = counted(tisfast, "misbehave", *[SAYS_NO] * 3)
    assert (ours.get("success", 0), ours.get("fail", 0)) == (0, 3)


def shape(value: Any) -> Any:
    """Names and types of a JSON value, without its numbers."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


@pytest.mark.parametrize("target", ["/v2/models/add_sub/stats", "/v2/models/add_sub/versions/1/stats"])
def test_statistics_have_the_same_form(target: str, triton: Servers, tisfast: Servers) -> None:
    texts = [ask(servers, GOOD, Request("GET", target))[1].body for servers in (triton, tisfast)]
    theirs, ours = (shape(json.loads(text)) for text in texts)
    assert ours == theirs


def test_statistics_of_all_name_the_same_models(triton: Servers, tisfast: Servers) -> None:
    def names(servers: Servers) -> set[tuple[str, str]]:
        body = ask(servers, Request("GET", "/v2/models/stats"))[0].body
        return {(each["name"], each["version"]) for each in json.loads(body)["model_stats"]}

    assert names(tisfast) == names(triton)


def metrics(servers: Servers, target: str = "/metrics") -> tuple[Answer, dict[str, float], dict[str, str]]:
    """The answer, samples by name and labels, and HELP and TYPE texts by family; nv_inference_* only."""
    answer = converse(servers.get().metrics, (Request("GET", target),))[0]
    samples, families = {}, {}
    for line in answer.body.decode().splitlines():
        if found := re.fullmatch(r"# (HELP|TYPE) (nv_inference_\w+) (.*)", line):
            families[f"{found[1]} {found[2]}"] = found[3]
        elif found := re.fullmatch(r"(nv_inference_\w+)\{(.*)\} (\S+)", line):
            labels = ",".join(sorted(re.findall(r'\w+="[^"]*"', found[2])))
            samples[f"{found[1]}{{{labels}}}"] = float(found[3])
    return answer, samples, families


def test_metrics_have_the_same_families_and_labels(triton: Servers, tisfast: Servers) -> None:
    (a, their_samples, their_families), (b, our_samples, our_families) = metrics(triton), metrics(tisfast)
    assert (b.status, b.headers["content-type"]) == (a.status, a.headers["content-type"])
    assert our_families == their_families
    assert set(our_samples) == set(their_samples)


@pytest.mark.parametrize("target", ["/metrics/", "/metrics?x=1"])
def test_metrics_are_found_at_the_same_places(target: str, triton: Servers, tisfast: Servers) -> None:
    (a, theirs, _), (b, ours, _) = metrics(triton, target), metrics(tisfast, target)
    assert (b.status, set(ours)) == (a.status, set(theirs))


@pytest.mark.parametrize(
    "requests",
    [[GOOD] * 4, [WRONG_SHAPE] * 2, [RAISES] * 2, [WIDE] * 2],
    ids=["good", "wrong shape", "model raises", "batches of three"],
)
def test_metrics_count_alike(requests: list[Request], triton: Servers, tisfast: Servers) -> None:
    def grown(servers: Servers) -> dict[str, float]:
        before = metrics(servers)[1]
        ask(servers, *requests)
        after = metrics(servers)[1]
        return {k: v - before[k] for k, v in after.items() if v != before[k] and "duration" not in k}

    assert grown(tisfast) == grown(triton)


def _root(value: float) -> Request:
    return post("partners", {"inputs": [tensor("INPUT0", "FP32", [1, 1], [value])]})


@pytest.mark.parametrize("values", [(4, 9), (4, -1), (-1, -4), (13, 4)])
def test_requests_of_one_batch_fare_alike(values: tuple[float, float], triton: Servers, tisfast: Servers) -> None:
    def fates(servers: Servers) -> list[tuple[int, str]]:
        answers = at_once(servers, [_root(value) for value in values])
        return [(a.status, a.body.decode().split("At:")[0]) for a in answers]

    assert fates(tisfast) == fates(triton)


def _sleep(ms: int, **parameters: object) -> Request:
    return post("sleeper", {"inputs": [tensor("MS", "UINT32", [1, 1], [ms])], "parameters": parameters})


@pytest.mark.parametrize("timeout_us", [0, 20000, 10**9])
@again
def test_a_request_that_waits_too_long_is_rejected_alike(timeout_us: int, triton: Servers, tisfast: Servers) -> None:
    def fates(servers: Servers) -> list[tuple[int, str]]:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(ask, servers, _sleep(500))
            time.sleep(0.15)  # until it surely runs: neither server tells when
            waiting = at_once(servers, [_sleep(1, timeout=timeout_us)] * 2)
            return [(a.status, a.body.decode()) for a in [*running.result(), *waiting]]

    theirs = fates(triton)
    assert fates(tisfast) == theirs


@again
def test_a_full_queue_rejects_alike(triton: Servers, tisfast: Servers) -> None:
    """Which of eight requests are late and which are too many is a matter of moments; both happen."""

    def fates(servers: Servers) -> set[tuple[int, str]]:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(ask, servers, _sleep(500))
            time.sleep(0.15)
            waiting = at_once(servers, [_sleep(1)] * 8)
            return {(a.status, a.body.decode()) for a in [*running.result(), *waiting]}

    theirs = set(fates(triton))
    assert fates(tisfast) == theirs
