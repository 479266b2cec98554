"""Answers of ensembles that are kept."""

from __future__ import annotations

from tests.engine.ensemble_helpers import Ensemble, chain
from tisfast.engine.response_cache import LocalStore, ModelCache


def caching():
    e = Ensemble(chain("x", "y"), "x", "y")
    e.runtime.cache = ModelCache(LocalStore(1 << 20), b"salt", 7)
    return e


def counts(e):
    return {key: value["count"] for key, value in e.runtime.stats.inference_stats().items() if value["count"]}


def test_a_kept_answer_skips_all_steps():
    e = caching()
    e.send("first", IN=1)
    e["x"].run()
    e["y"].run()
    e.send("second", IN=1)
    assert (e["x"].waiting, e.runtime.inflight) == (0, 0)
    assert e.told("first") == e.told("second") == [({"OUT": 1}, True)]
    assert e.parameters("second") == e.parameters("first")
    found = counts(e)
    assert (found["success"], found["cache_hit"], found["cache_miss"]) == (2, 1, 1)
    assert e.runtime.stats.execution_count == 1


def test_other_inputs_run():
    e = caching()
    e.send("first", IN=1)
    e["x"].run()
    e["y"].run()
    e.send("second", IN=2)
    assert e["x"].waiting == 1


def test_an_error_is_not_kept():
    e = caching()
    e.send("first", IN=1)
    e["x"].fail()
    e.send("second", IN=1)
    assert e["x"].waiting == 1
