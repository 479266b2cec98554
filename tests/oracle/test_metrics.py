"""After the same traffic both servers show the same families, types, help texts, labels and counts."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from perf.oracle.server import Kind, Server
from tests.oracle.cases.table import post, tensor
from tests.oracle.exchange import Request, converse
from tests.oracle.readings import Exposition
from tests.oracle.servers import EXAMPLES

FLAGS = ("--metrics-config", "summary_latencies=true", "--metrics-config", "summary_quantiles=0.5:0.05,0.99:0.001")
COUNTED = (
    *("nv_inference_request_success", "nv_inference_request_failure"),
    *("nv_inference_count", "nv_inference_exec_count"),
)
NEWER = ("nv_model_load_duration_secs",)  # 2.51 does not have it yet


def scraped(kind: Kind) -> Exposition:
    inputs = [tensor(name, "FP32", [4], [1, 2, 3, 4]) for name in ("INPUT0", "INPUT1")]
    good, bad = post("add_sub", {"inputs": inputs}), post("add_sub", {"inputs": inputs[:1]})
    requests: tuple[Request, ...] = (good, good, good, bad)
    with Server(kind, [EXAMPLES], list(FLAGS)) as server:
        assert [answer.status for answer in converse(server.http, requests)] == [200, 200, 200, 400]
        connection = http.client.HTTPConnection("localhost", server.metrics, timeout=60)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.getheader("Content-Type") == "text/plain; charset=utf-8"
        text = answer.read().decode()
        connection.close()
    return Exposition(text)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Exposition, Exposition]]:
    yield scraped("triton"), scraped("tisfast")


def test_families_types_and_help_texts(both: tuple[Exposition, Exposition]) -> None:
    theirs, ours = both
    assert {name: about for name, about in ours.about.items() if name not in NEWER} == theirs.about
    assert [name for name in ours.about if name not in NEWER] == list(theirs.about)


def test_names_and_labels_of_samples(both: tuple[Exposition, Exposition]) -> None:
    theirs, ours = both
    assert {key for key in ours.samples if key[0] not in NEWER} == set(theirs.samples)


def test_counts(both: tuple[Exposition, Exposition]) -> None:
    theirs, ours = both
    counted = [key for key in theirs.samples if key[0] in COUNTED or key[0].endswith("_us_count")]
    assert len(counted) > len(COUNTED)
    assert {key: ours.samples[key] for key in counted} == {key: theirs.samples[key] for key in counted}
