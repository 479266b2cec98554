"""Models that come, change and go, with real workers and without fronts."""

import asyncio
import functools
import gc
import os
import shutil

import pytest

from tests.model_fixtures import CONFIG, MODEL, descriptors, descriptors_are
from tests.waiting import Gate, until
from tisfast.errors import TisError
from tisfast.models.lifecycle import LoadOrder


def index(registry) -> list[tuple[str, str, str, str]]:
    return [(entry.name, entry.version, entry.state, entry.reason) for entry in registry.models()]


@pytest.fixture
def explicit(supervise):
    """A supervisor in mode explicit, with nothing loaded."""
    return supervise(explicit=())


def test_nothing_is_loaded_before_somebody_asks(supervise, write, registry, run):
    write("m")
    supervisor = supervise(explicit=())
    assert index(registry) == [("m", "", "", "")]
    run(supervisor.lifecycle.load(LoadOrder("m")))
    assert index(registry) == [("m", "1", "READY", "")]
    run(supervisor.lifecycle.unload("m"))
    run(until(lambda: not supervisor.served))
    assert index(registry) == [("m", "1", "UNAVAILABLE", "unloaded")]
    assert registry.ready()


def test_an_unchanged_model_is_left_alone(explicit, write, registry, run):
    write("m")
    run(explicit.lifecycle.load(LoadOrder("m")))
    before = registry.resolve("m")
    run(explicit.lifecycle.load(LoadOrder("m")))
    assert registry.resolve("m") is before
    run(explicit.lifecycle.load(LoadOrder("m", force=True)))
    assert registry.resolve("m") is not before


def test_a_changed_model_is_replaced(explicit, write, registry, run):
    folder = write("m")
    run(explicit.lifecycle.load(LoadOrder("m")))
    before, pid = registry.resolve("m"), explicit.served[0].instances[0].pid
    (folder / "1" / "model.py").write_text(MODEL + "\n# anew")
    run(explicit.lifecycle.load(LoadOrder("m")))
    assert registry.resolve("m") is not before
    run(until(lambda: len(explicit.served) == 1))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_failed_reload_keeps_what_serves(explicit, write, registry, run):
    folder = write("m")
    run(explicit.lifecycle.load(LoadOrder("m")))
    before = registry.resolve("m")
    (folder / "1" / "model.py").write_text("raise ValueError('no weights')")
    with pytest.raises(TisError, match="load failed for model 'm': .*no weights"):
        run(explicit.lifecycle.load(LoadOrder("m")))
    assert registry.resolve("m") is before and before.ready
    assert registry.ready()
    [(_, _, state, reason)] = index(registry)
    assert state == "READY" and "no weights" in reason
    (folder / "1" / "model.py").write_text(MODEL)
    run(explicit.lifecycle.load(LoadOrder("m")))
    assert index(registry) == [("m", "1", "READY", "")]


def test_instances_are_added_and_stopped_in_place(explicit, write, registry, run):
    folder = write("m")
    run(explicit.lifecycle.load(LoadOrder("m")))
    before = registry.resolve("m")
    [alone] = explicit.served[0].instances
    (folder / "config.pbtxt").write_text(CONFIG + "instance_group [ { count: 3 kind: KIND_CPU } ]")
    run(explicit.lifecycle.load(LoadOrder("m")))
    assert registry.resolve("m") is before and before.ready
    three = list(explicit.served[0].instances)
    assert len(three) == 3 and three[0] is alone
    assert [each.planned.name for each in three] == ["m_0", "m_0_1", "m_0_2"]
    assert before.config["instance_group"][0]["count"] == 3
    (folder / "config.pbtxt").write_text(CONFIG + "instance_group [ { count: 1 kind: KIND_CPU } ]")
    run(explicit.lifecycle.load(LoadOrder("m")))
    assert explicit.served[0].instances == [alone] and before.ready
    run(until(lambda: sum(each.state.value == "stopped" for each in three) >= 2))


def test_versions_come_and_go_beside_each_other(explicit, write, registry, run):
    folder = write("m", config=CONFIG + "version_policy { all { } }")
    run(explicit.lifecycle.load(LoadOrder("m")))
    first = registry.resolve("m", "1")
    (folder / "2").mkdir()
    (folder / "2" / "model.py").write_text(MODEL)
    run(explicit.lifecycle.load(LoadOrder("m")))
    assert registry.resolve("m", "1") is first and registry.versions("m") == ["1", "2"]
    (folder / "config.pbtxt").write_text(CONFIG)
    run(explicit.lifecycle.load(LoadOrder("m")))
    run(until(lambda: len(explicit.served) == 1))
    assert index(registry) == [("m", "1", "UNAVAILABLE", "unloaded"), ("m", "2", "READY", "")]


def test_a_model_that_is_nowhere(explicit, registry, run):
    with pytest.raises(TisError, match="^failed to load 'x', failed to poll from model repository$"):
        run(explicit.lifecycle.load(LoadOrder("x")))
    run(explicit.lifecycle.unload("x"))
    assert index(registry) == []


def test_other_modes_take_no_orders(supervise, write, run):
    write("m")
    supervisor = supervise()
    with pytest.raises(TisError, match="explicit model load / unload is not allowed"):
        run(supervisor.lifecycle.load(LoadOrder("m")))
    with pytest.raises(TisError, match="explicit model load / unload is not allowed"):
        run(supervisor.lifecycle.unload("m"))


def test_what_changed_on_the_disk_is_applied(supervise, write, registry, run, tmp_path):
    old = write("old")
    write("good")
    supervisor = supervise()
    write("bad", "raise ValueError('no weights')")
    write("new")
    shutil.rmtree(old)
    run(supervisor.lifecycle.apply(["old", "bad", "new", "good"]))
    run(until(lambda: len(supervisor.served) == 2))
    states = {name: state for name, _, state, _ in index(registry)}
    assert states == {"old": "UNAVAILABLE", "bad": "UNAVAILABLE", "new": "READY", "good": "READY"}


def test_thirty_reloads_leave_nothing_behind(explicit, write, run):
    write("m")
    run(explicit.lifecycle.load(LoadOrder("m")))

    def reload() -> None:
        run(explicit.lifecycle.load(LoadOrder("m", force=True)))
        run(until(lambda: len(explicit.served) == 1))

    reload()
    gc.collect()
    gc.disable()  # memory and descriptors are not to wait for the collector
    try:
        before = run(descriptors())
        for _ in range(30):
            reload()
        run(descriptors_are(before))
    finally:
        gc.enable()


def test_what_is_said_of_a_failed_attempt_ends_with_the_next_look(explicit, write, registry, run):
    folder = write("m", config=CONFIG + "version_policy { all { } }")
    run(explicit.lifecycle.load(LoadOrder("m")))
    (folder / "2").mkdir()
    (folder / "2" / "model.py").write_text("raise ValueError('two')")
    with pytest.raises(TisError, match="version 2 is at UNAVAILABLE state: Internal: ValueError: two"):
        run(explicit.lifecycle.load(LoadOrder("m")))
    assert [(version, state) for _, version, state, _ in index(registry)] == [("1", "READY"), ("2", "UNAVAILABLE")]
    assert registry.ready()
    shutil.rmtree(folder / "2")
    run(explicit.lifecycle.load(LoadOrder("m")))
    assert index(registry) == [("m", "1", "READY", "")]


STEP = CONFIG.replace("dims: [ 1 ]", "dims: [ -1 ]")
ENSEMBLE = """
platform: "ensemble"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "s1" model_version: -1 input_map { key: "A" value: "A" } output_map { key: "B" value: "t" } },
  { model_name: "s2" model_version: -1 input_map { key: "A" value: "t" } output_map { key: "B" value: "B" } } ] }
"""


@pytest.fixture
def ensemble(explicit, write, run):
    write("s1", config=STEP)
    write("s2", config=STEP)
    write("e", config=ENSEMBLE)
    run(explicit.lifecycle.load(LoadOrder("e")))
    return explicit


def states(registry) -> dict[str, str]:
    return {name: reason or state for name, _, state, reason in index(registry) if state}


def test_an_ensemble_brings_its_steps(ensemble, registry, run):
    assert states(registry) == {"e": "READY", "s1": "READY", "s2": "READY"}
    run(ensemble.lifecycle.load(LoadOrder("s1")))  # now for itself, too
    run(ensemble.lifecycle.unload("e", dependents=True))
    run(until(lambda: len(ensemble.served) == 1))
    assert states(registry) == {"e": "unloaded", "s1": "READY", "s2": "unloaded"}


def test_an_ensemble_goes_and_comes_with_its_step(ensemble, registry, run):
    run(ensemble.lifecycle.unload("s1"))
    run(until(lambda: len(ensemble.served) == 1))
    assert states(registry) == {"e": "unloaded", "s1": "unloaded", "s2": "READY"}
    assert registry.ready()
    run(ensemble.lifecycle.load(LoadOrder("s1")))
    assert states(registry) == {"e": "READY", "s1": "READY", "s2": "READY"}


def test_an_ensemble_is_joined_to_the_new_copy_of_its_step(ensemble, write, registry, run, tmp_path):
    before, step = registry.resolve("e"), registry.resolve("s1")
    (tmp_path / "s1" / "1" / "model.py").write_text(MODEL + "\n# anew")
    run(ensemble.lifecycle.load(LoadOrder("s1")))
    served = {each.runtime.signature.name: each for each in ensemble.served}
    assert registry.resolve("e") is not before and registry.resolve("s1") is not step
    assert registry.resolve("s1") in served["e"].uses
    run(until(lambda: len(ensemble.served) == 3))


def test_an_ensemble_that_its_step_does_not_fit_any_more(ensemble, registry, run, tmp_path):
    (tmp_path / "s1" / "config.pbtxt").write_text(STEP.replace('"B"', '"C"'))
    run(ensemble.lifecycle.load(LoadOrder("s1")))
    assert "mapped from non-existing output B in model s1" in states(registry)["e"]
    with pytest.raises(TisError, match="has no available versions"):
        registry.resolve("e")
    (tmp_path / "s1" / "config.pbtxt").write_text(STEP)
    run(ensemble.lifecycle.load(LoadOrder("s1")))
    assert states(registry)["e"] == "READY"


def test_a_wrong_configuration_of_an_ensemble_leaves_what_serves(ensemble, registry, run, tmp_path):
    before = registry.resolve("e")
    (tmp_path / "e" / "config.pbtxt").write_text(ENSEMBLE.replace('key: "B" value: "t"', 'key: "X" value: "t"'))
    with pytest.raises(TisError, match="load failed for model 'e': in ensemble e"):
        run(ensemble.lifecycle.load(LoadOrder("e")))
    assert registry.resolve("e") is before
    assert "non-existing output X" in states(registry)["e"]


@pytest.fixture
def gated(write, tmp_path):
    """Write a model that loads when `open()` has been called; `begun()` tells whether it does already."""
    gate, begun = Gate(tmp_path / "gate"), tmp_path / "begun"
    write_gated = functools.partial(write, code=f"open({str(begun)!r}, 'w').close()\n{gate.wait}\n{MODEL}")
    write_gated.open, write_gated.begun = gate.open, begun.exists
    return write_gated


def test_loads_of_one_model_follow_each_other_and_others_run_beside(explicit, gated, write, registry, run):
    gated("slow")
    write("quick")

    async def both() -> None:
        first = asyncio.ensure_future(explicit.lifecycle.load(LoadOrder("slow")))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(explicit.lifecycle.unload("slow"))
        await explicit.lifecycle.load(LoadOrder("quick"))
        assert not first.done()
        gated.open()
        await asyncio.gather(first, second)

    run(both())
    assert states(registry)["quick"] == "READY"
    run(until(lambda: states(registry)["slow"] == "unloaded"))


def test_a_load_that_nobody_waits_for_goes_on(explicit, gated, registry, run):
    gated("m")

    async def leave() -> None:
        task = asyncio.ensure_future(explicit.lifecycle.load(LoadOrder("m")))
        await until(gated.begun)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(leave())
    gated.open()
    run(until(lambda: states(registry).get("m") == "READY"))


def test_the_end_does_not_wait_for_loads(explicit, gated, run):
    gated("m")

    async def stop() -> None:
        task = asyncio.ensure_future(explicit.lifecycle.load(LoadOrder("m")))
        await until(gated.begun)
        await explicit.stop(1)
        with pytest.raises(TisError, match="Server is stopping"):
            await task
        with pytest.raises(TisError, match="Server is stopping"):
            await explicit.lifecycle.load(LoadOrder("m"))

    run(stop())
