"""What is loaded, left alone and unloaded: examples, and a machine that carries plans out against a changing disk."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.repo.sources import NAMES, STEPS, source
from tisfast.errors import ConfigError, Internal
from tisfast.repo.dependencies import dependencies
from tisfast.repo.load_plan import Act, Order, WantedModel, closure, plan
from tisfast.repo.scan_result import ModelFailure, ModelSource


def held(*names: str, implicit: tuple[str, ...] = (), **sources) -> dict[str, WantedModel]:
    every = {name: WantedModel(sources.get(name, source(name)), True, True) for name in names}
    return every | {name: WantedModel(sources.get(name, source(name)), False, True) for name in implicit}


def load(before, *found, **more):
    wanted = frozenset(more.pop("wanted", {found[0].name}))
    return plan(before, {each.name: each for each in found}, Order(wanted=wanted, **more))


def unload(before, name, **more):
    return plan(before, {}, Order(unwanted=frozenset({name}), **more))


def acts(planned) -> list[list[tuple[str, str]]]:
    return [[(action.act.value, action.name) for action in group] for group in planned.groups]


def the_change(planned):
    [[action]] = planned.groups
    return action.change


def numbers(versions) -> list[int]:
    return [version.number for version in versions]


def test_the_first_load():
    assert acts(load({}, source("a"))) == [[("load", "a")]]


def test_what_has_not_changed_is_left_alone():
    assert acts(load(held("a"), source("a"))) == []
    assert acts(load(held("a"), source("a"), forced=frozenset({"a"}))) == [[("change", "a")]]


def test_another_file_is_another_copy():
    change = the_change(load(held("a"), source("a", revision=2)))
    assert numbers(change.fresh) == [1] and not change.kept and not change.resized


def test_only_instances():
    change = the_change(load(held("a"), source("a", two=True)))
    assert not change.fresh and numbers(change.kept) == [1] and change.resized and change.restated


def test_only_versions():
    change = the_change(load(held("a"), source("a", versions=(1, 2))))
    assert numbers(change.fresh) == [2] and numbers(change.kept) == [1]
    change = the_change(load(held("a", a=source("a", versions=(1, 2))), source("a", versions=(2,))))
    assert not change.fresh and numbers(change.kept) == [2] and change.gone == (1,)


def test_a_file_that_all_versions_share():
    before = held("a", a=source("a", versions=(1, 2)))
    assert numbers(the_change(load(before, source("a", versions=(1, 2), labels=2))).fresh) == [1, 2]


def test_a_configuration_that_is_wrong_leaves_what_serves():
    failure = ModelFailure("a", Path("/repo"), Path("/repo/a"), (ConfigError("wrong"),))
    [[action]] = load(held("a"), failure).groups
    assert action.act is Act.REFUSE and "wrong" in str(action.error)


def test_an_ensemble_brings_its_steps():
    planned = load({}, source("ab"), source("a"), source("b"))
    assert acts(planned) == [[("load", "a"), ("load", "b"), ("load", "ab")]]
    assert planned.explicit == {"ab"}


def test_an_ensemble_takes_its_steps_along_when_asked_to_and_nobody_else_wants_them():
    before = held("ab", "bc", implicit=("a", "b", "c"))
    assert acts(unload(before, "ab")) == [[("unload", "ab")]]
    assert acts(unload(before, "ab", dependents=True)) == [[("unload", "a"), ("unload", "ab")]]
    before = held("ab", "a", implicit=("b",))
    assert acts(unload(before, "ab", dependents=True)) == [[("unload", "b"), ("unload", "ab")]]
    before = held("outer", implicit=("ab", "a", "b", "c"))
    assert len(acts(unload(before, "outer", dependents=True))[0]) == 5


def test_an_ensemble_is_joined_anew_to_a_step_that_changed():
    planned = load(held("ab", "a", "b", "outer", "c"), source("a", revision=2))
    assert acts(planned) == [[("change", "a"), ("change", "ab"), ("change", "outer")]]


def test_an_ensemble_comes_back_with_its_step():
    before = held("b") | {"ab": WantedModel(source("ab"), True, False)}
    assert acts(load(before, source("a"))) == [[("load", "a"), ("load", "ab")]]


def test_an_ensemble_that_lost_its_step_is_not_tried_for_others():
    before = held("b") | {"ab": WantedModel(source("ab"), True, False)}
    assert acts(load(before, source("d"))) == [[("load", "d")]]


def test_an_ensemble_of_nobody():
    nobody = Internal("failed to load 'b', failed to poll from model repository")
    planned = plan({}, {"ab": source("ab"), "a": source("a"), "b": nobody}, Order(wanted=frozenset({"ab"})))
    assert ("refuse", "ab") in acts(planned)[0] and ("load", "a") in acts(planned)[0]


def test_what_has_nothing_to_do_with_each_other_is_apart():
    assert acts(load({}, source("a"), source("d"), wanted={"a", "d"})) == [[("load", "a")], [("load", "d")]]


@dataclass
class OnDisk:
    """What a folder holds."""

    revision: int = 1
    two: bool = False
    wrong: bool = False
    breaks: bool = False  # its load fails

    def found(self, name: str):
        if self.wrong:
            return ModelFailure(name, Path("/repo"), Path("/repo", name), (ConfigError("wrong"),))
        return source(name, revision=self.revision, two=self.two)


@dataclass
class Served:
    """A model that is held: what serves of it, and the copies of its steps that an ensemble is joined to."""

    source: ModelSource | None
    explicit: bool
    copy: int = 0
    joined: dict[str, int] = field(default_factory=dict)

    @property
    def held(self) -> WantedModel:
        return WantedModel(self.source, self.explicit, self.copy > 0)


class Models(RuleBasedStateMachine):
    """Loads and unloads carried out as models.copies does, over folders that come, change, break and go."""

    def __init__(self) -> None:
        super().__init__()
        self.disk: dict[str, OnDisk] = {name: OnDisk() for name in NAMES}
        self.held: dict[str, Served] = {}
        self.copies = 0

    # ---- the disk

    @rule(name=st.sampled_from(NAMES))
    def touch(self, name):
        if name in self.disk:
            self.disk[name].revision += 1

    @rule(name=st.sampled_from("abcd"), wrong=st.booleans(), breaks=st.booleans(), two=st.booleans())
    def edit(self, name, wrong, breaks, two):
        if name in self.disk:
            before = self.disk[name]
            self.disk[name] = replace(before, wrong=wrong, breaks=breaks, two=two, revision=before.revision + breaks)

    @rule(name=st.sampled_from(NAMES), there=st.booleans())
    def come_and_go(self, name, there):
        if there:
            self.disk.setdefault(name, OnDisk())
        else:
            self.disk.pop(name, None)

    # ---- orders

    @rule(name=st.sampled_from(NAMES), force=st.booleans())
    def load(self, name, force):
        before = {each: self.held[each].copy for each in self.held}
        failed = self.order(Order(wanted=frozenset({name}), forced=frozenset({name} if force else ())))
        if self.sound(name):
            assert name not in failed and self.held[name].copy
            assert self.held[name].source == self.disk[name].found(name)
            assert not force or self.held[name].copy != before.get(name)
        for each, copy in before.items():
            if each not in self.touching(name):
                assert self.held[each].copy == copy

    @rule(name=st.sampled_from(NAMES))
    def load_twice(self, name):
        self.load(name, False)
        if self.sound(name):
            before = {each: self.held[each].copy for each in self.held}
            self.load(name, False)
            assert {each: self.held[each].copy for each in self.held} == before

    @rule(name=st.sampled_from(NAMES), dependents=st.booleans())
    def unload(self, name, dependents):
        before = set(self.held)
        self.order(Order(unwanted=frozenset({name}), dependents=dependents))
        assert name not in self.held
        gone = before - self.held.keys()
        assert gone <= (closure([name], {each: source(each) for each in NAMES}) if dependents else {name})
        left = {step for each in self.held.values() if each.source for step in dependencies(each.source)}
        for each in gone - {name}:
            assert each not in left
        if dependents and name in before:
            assert all(self.held[each].explicit or each in left for each in STEPS[name] if each in self.held)

    @rule()
    @precondition(lambda self: self.held)
    def unload_everything(self):
        self.order(Order(unwanted=frozenset(self.held)))
        assert not self.held

    def sound(self, name: str) -> bool:
        """Whether nothing on the disk hinders a model and its steps."""
        return all(
            each in self.disk and not self.disk[each].wrong and not self.disk[each].breaks
            for each in closure([name], {each: source(each) for each in NAMES})
        )

    def touching(self, name: str) -> set[str]:
        """Everything that hangs together with a model."""
        below = closure([name], {each: source(each) for each in NAMES})
        return below | {each for each in NAMES if closure([each], {n: source(n) for n in NAMES}) & below}

    # ---- carrying out

    def order(self, order: Order) -> set[str]:
        nobody = Internal("nowhere")
        found = {}
        while missing := closure(order.wanted, self.sources(found)) - found.keys():
            found.update((name, self.disk[name].found(name) if name in self.disk else nobody) for name in missing)
        planned = plan({name: each.held for name, each in self.held.items()}, found, order)
        for name, each in self.held.items():
            each.explicit = name in planned.explicit
        return {name for group in planned.groups for name in self.carry_out(group)}

    def sources(self, found):
        sources = {name: each.source for name, each in self.held.items()}
        return sources | {name: each for name, each in found.items() if isinstance(each, ModelSource)}

    def carry_out(self, group) -> set[str]:
        failed = set()
        names = [action.name for action in group]
        assert len(names) == len(set(names))
        for action in group:
            steps = dependencies(action.source) if action.source is not None else ()
            assert not set(steps) & set(names[names.index(action.name) :]), "steps come first"
            if action.act is Act.UNLOAD:
                del self.held[action.name]
            elif action.act is Act.REFUSE or not self.succeeds(action, steps):
                failed.add(action.name)
                self.fail(action)
            else:
                self.switch(action, steps)
        return failed

    def succeeds(self, action, steps) -> bool:
        breaks = action.name in self.disk and self.disk[action.name].breaks
        return all(step in self.held and self.held[step].copy for step in steps) and not breaks

    def fail(self, action) -> None:
        if action.source is None and action.name not in self.held:
            return
        each = self.held.setdefault(action.name, Served(action.source, action.explicit))
        if any(step not in self.held or self.held[step].copy != copy for step, copy in each.joined.items()):
            each.copy, each.joined = 0, {}

    def switch(self, action, steps) -> None:
        if action.change is None or action.change.fresh:
            self.copies += 1
            copy = self.copies
        else:
            copy = self.held[action.name].copy
        joined = {step: self.held[step].copy for step in steps}
        self.held[action.name] = Served(action.source, action.explicit, copy, joined)

    @invariant()
    def ensembles_are_joined_to_what_serves(self):
        for each in self.held.values():
            for step, copy in each.joined.items():
                assert self.held[step].copy == copy


TestModels = Models.TestCase
TestModels.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)
