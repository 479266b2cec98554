"""What load generators are told."""

from __future__ import annotations

import pytest

from perf.clients import Address, Load, analyzer_flags, measure
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


def test_more_flags_reach_perf_analyzer():
    assert analyzer_flags(IMAGE._replace(flags=("--streaming",)), 1)[-1] == "--streaming"
