"""The server's statistics of exactly the measured time."""

from __future__ import annotations

import threading

import pytest

from tisfast.bench.collected import added
from tisfast.bench.server_side import Counters, Models, ServerSide, composing_models, read_statistics, split
from tisfast.errors import BadResponse


def entry(name: str, count: int, version: str = "1") -> dict[str, object]:
    """As a server says it, over gRPC or HTTP: numbers may be texts."""
    duration = {"count": str(count), "ns": count * 1000}
    parts = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    return {
        "name": name,
        "version": version,
        "inference_count": 2 * count,
        "execution_count": count,
        "inference_stats": {"fail": {"count": 0}, **dict.fromkeys(parts, duration)},
        "batch_stats": [{"batch_size": 2, "compute_infer": {"count": count, "ns": 1}}],
    }


def test_it_is_what_the_counters_have_grown_by():
    before, after = read_statistics([entry("m", 10)]), read_statistics([entry("m", 17)])
    found = split(before, after, Models("m", ""))
    assert found is not None
    assert (found.success_count, found.success_ns, found.queue_ns, found.inference_count) == (7, 7000, 7000, 14)
    assert found.batch_sizes == {2: 7}


def test_where_no_version_was_asked_for_it_is_the_one_that_did_most():
    before = read_statistics([entry("m", 100, "1"), entry("m", 0, "2")])
    after = read_statistics([entry("m", 100, "1"), entry("m", 5, "2")])
    found = split(before, after, Models("m", ""))
    assert found is not None
    assert (found.version, found.success_count) == ("2", 5)
    asked = split(before, after, Models("m", "1"))
    assert asked is not None
    assert asked.success_count == 0


def test_a_model_that_was_loaded_anew_counts_from_nothing():
    found = split(read_statistics([entry("m", 10)]), read_statistics([entry("m", 3)]), Models("m", ""))
    assert found is not None
    assert found.success_count == 3


def test_the_models_of_an_ensemble_are_told_apart():
    steps = [{"model_name": "a", "model_version": -1}, {"model_name": "b", "model_version": 3}]
    config = {"ensemble_scheduling": {"step": steps}}
    parts = composing_models(config)
    assert parts == [("a", ""), ("b", "3")]
    names = [("e", "1"), ("a", "1"), ("b", "3")]
    before = read_statistics([entry(name, 1, version) for name, version in names])
    after = read_statistics([entry(name, 4, version) for name, version in names])
    found = split(before, after, Models("e", "", parts))
    assert found is not None
    assert {key: each.success_count for key, each in found.composing.items()} == {"a:1": 3, "b:3": 3}


def test_windows_that_follow_each_other_are_added():
    looks = [read_statistics([entry("m", count)]) for count in (1, 3, 8)]
    windows = [split(*pair, Models("m", "")) for pair in zip(looks, looks[1:], strict=False)]
    found = added(windows)
    assert found is not None
    assert (found.success_count, found.batch_sizes) == (7, {2: 7})
    assert added([*windows, None]) is None


def test_a_server_that_says_nothing_of_the_model_has_no_split():
    assert split(Counters(), Counters(), Models("m", "")) is None


def test_statistics_that_are_none_are_refused():
    with pytest.raises(BadResponse, match="the server's statistics cannot be read"):
        read_statistics([{"version": "1"}])


def test_there_is_one_look_at_a_time():
    """A server whose statistics hang is asked once, and not by each window anew."""
    asked, answer = threading.Semaphore(0), threading.Event()

    class Hanging:
        def statistics(self, _):
            asked.release()
            assert answer.wait(10)
            return [entry("m", 3)]

    side = ServerSide(Hanging(), Models("m", ""))
    first = side.look()
    assert asked.acquire(timeout=10)
    assert side.look().result(0) is None
    assert side.failure == "an earlier call has not been answered"
    answer.set()
    assert first.result(10) is not None
    assert side.look().result(10) is not None
    side.close()
