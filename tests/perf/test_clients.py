"""What load generators are told."""

from __future__ import annotations

import json

import pytest

from perf.clients import Address, Load, analyzer_flags, measure, wrk_body
from perf.figures import RunFailed

IMAGE = Load("perf_analyzer", "identity_fp32:INPUT0:150528", 4, "grpc", 602112)


def test_a_case_names_model_and_shape():
    flags = analyzer_flags(IMAGE, 1.5)
    assert flags[:6] == ["-m", "identity_fp32", "--shape", "INPUT0:150528", "-i", "grpc"]
    assert flags[flags.index("-p") + 1] == "1500"
    assert "4:4" in flags


def test_shared_memory_is_asked_for_only_where_wanted():
    assert analyzer_flags(IMAGE, 1)[-2:] == ["--shared-memory=system", "--output-shared-memory-size=602112"]
    assert not [flag for flag in analyzer_flags(IMAGE._replace(shared_bytes=0), 1) if "shared" in flag]


def test_a_list_of_floats_is_sent_as_json():
    body = wrk_body("json1024")
    (given,) = json.loads(body.data)["inputs"]
    assert (given["shape"], len(given["data"]), body.json_bytes) == ([1024], 1024, None)


@pytest.mark.parametrize(
    ("load", "why"),
    [
        (Load("wrk", "bin4", 1, "grpc"), "wrk speaks http only"),
        (Load("h2load", "add_sub", 1, "http"), "h2load speaks grpc only"),
        (Load("h2load", "add_sub", 32, "grpc"), "no grpc port"),
        (Load("wrk", "cow4", 1), "unknown case 'cow4'"),
    ],
)
def test_what_cannot_be_measured_is_refused(load, why):
    with pytest.raises(RunFailed, match=why):
        measure(load, Address("localhost:1", ""), 1)


def test_a_body_for_a_named_model_has_the_shape_that_was_asked_for():
    body = wrk_body("sleep_2ms/bin1x4")
    (given,) = json.loads(body.data[: body.json_bytes])["inputs"]
    assert (body.path, given["name"], given["shape"]) == ("/v2/models/sleep_2ms/infer", "INPUT0", [1, 4])
    assert len(body.data) == body.json_bytes + 16


def test_more_flags_reach_perf_analyzer():
    assert analyzer_flags(IMAGE._replace(flags=("--streaming",)), 1)[-1] == "--streaming"
