"""Whatever graph, in whatever order its steps end: every request is answered once, rightly, and no block is kept."""

from __future__ import annotations

import gc

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.engine.ensemble_helpers import Ensemble, step

INTERNAL = 13


@st.composite
def graphs(draw):
    """(steps, inputs, outputs, sources): steps are (name, sources), and what they make is all that nobody uses."""
    inputs = [f"I{i}" for i in range(draw(st.integers(1, 3)))]
    made = list(inputs)
    sources = {}
    for number in range(draw(st.integers(1, 7))):
        wanted = draw(st.lists(st.sampled_from(made), min_size=1, max_size=2))
        sources[f"t{number}"] = wanted
        made.append(f"t{number}")
    used = {each for wanted in sources.values() for each in wanted}
    inputs = [each for each in inputs if each in used]
    outputs = [each for each in sources if each not in used]
    extra = draw(st.lists(st.sampled_from(sorted(sources)), max_size=2, unique=True))
    return inputs, sorted({*outputs, *extra}), sources


def value_of(name, sources, values):
    """Each step adds its inputs and one."""
    return values[name] if name in values else 1 + sum(value_of(each, sources, values) for each in sources[name])


def build(inputs, outputs, sources, most):
    steps = "".join(
        step(f"m{name}", " ".join(f"{role}={source}" for role, source in zip("AB", wanted, strict=False)), f"C={name}")
        for name, wanted in sources.items()
    )
    models = [
        {
            "name": f"m{name}",
            "inputs": tuple("AB"[: len(wanted)]),
            "outputs": ("C",),
            "compute": lambda given: {"C": 1 + sum(given.values())},
        }
        for name, wanted in sources.items()
    ]
    return Ensemble(steps, *models, inputs=" ".join(inputs), outputs=" ".join(outputs), most=most)


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_request_is_answered_once_and_rightly(data):
    inputs, outputs, sources = data.draw(graphs())
    e = build(inputs, outputs, sources, data.draw(st.sampled_from([0, 0, 1, 2])))
    gc.disable()
    try:
        drive(data, e, inputs, outputs, sources)
        e.forget()
        assert e.used_blocks == 0
    finally:
        gc.enable()
    assert e.runtime.inflight == 0


def no_instance_is_idle_while_a_request_waits(e):
    for model in e.models.values():
        if model.runtime.queued or any(len(link.dispatched) > link.begun for link in model.runtime.links):
            assert all(link.dispatched for link in model.runtime.links), model.signature.name


def drive(data, e, inputs, outputs, sources):
    sent = {}
    troubled = set()
    for turn in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["send", "run", "run", "run", "fail", "cancel"]))
        busy = [model for model in e.models.values() if model.waiting]
        if action == "send" or not busy:
            values = {name: data.draw(st.integers(0, 99)) for name in inputs}
            wanted = data.draw(st.lists(st.sampled_from(outputs), min_size=1, unique=True))
            name = f"r{turn}"
            sent[name] = (values, wanted, e.send(name, outputs=wanted, **values))
        elif action == "cancel":
            name = data.draw(st.sampled_from(sorted(sent)))
            troubled.add(name)
            e.cancel(sent[name][2])
        else:
            model = data.draw(st.sampled_from(busy))
            if action == "fail":
                troubled.add(model.link.ids()[0][0])
                model.fail()
            else:
                model.run()
        no_instance_is_idle_while_a_request_waits(e)
    while busy := [model for model in e.models.values() if model.waiting]:
        data.draw(st.sampled_from(busy)).run()
    for name, (values, wanted, _) in sent.items():
        ((told, final),) = e.told(name)
        assert final
        if isinstance(told, dict):
            assert told == {each: value_of(each, sources, values) for each in wanted}
        else:
            assert name in troubled


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.data())
def test_streams_are_complete_and_in_order(data):
    """A decoupled step, another behind it, and one that is not: responses as the first step's, then the second's."""
    nested = data.draw(st.booleans())
    middle = [{"name": "again", "decoupled": True}] if nested else []
    steps = step("rep", "A=IN", "B=a")
    steps += step("again", "A=a", "B=b") + step("x", "A=b", "B=OUT") if nested else step("x", "A=a", "B=OUT")
    models = [{"name": "rep", "decoupled": True}, *middle, "x"]
    e = Ensemble(steps, *models, most=data.draw(st.sampled_from([0, 1, 3])))
    second = type(e["x"].link)("x_1", e["x"].runtime, e.clock)
    e["x"].runtime.add_link(second)
    e.send(IN=0)
    outer = e["rep"].open()
    expected, inner = [], []
    for number in range(data.draw(st.integers(0, 4))):
        e["rep"].respond(outer, 100 * (number + 1))
        expected.append([] if nested else [100 * (number + 1)])
        for link in data.draw(st.lists(st.sampled_from([e["x"].link, second]), max_size=2)):
            if link.dispatched:
                link.execute(answer=e["x"].answer)
        no_instance_is_idle_while_a_request_waits(e)
    e["rep"].end(outer)
    while True:
        choices = []
        if nested and e["again"].waiting:
            choices.append("open")
        choices += ["respond"] * bool(inner)
        choices += [link for link in (e["x"].link, second) if link.dispatched]
        if not choices:
            break
        choice = data.draw(st.sampled_from(choices))
        if choice == "open":
            inner.append(e["again"].open())
        elif choice == "respond":
            respond(data, e, inner, expected)
        else:
            choice.execute(answer=e["x"].answer)
        no_instance_is_idle_while_a_request_waits(e)
    told = e.told()
    assert [outputs["OUT"] for outputs, _ in told if outputs is not None] == [v for each in expected for v in each]
    assert [final for _, final in told] == [False] * (len(told) - 1) + [True]


def respond(data, e, inner, expected):
    """A response, or the end, of one of the inner streams.  Their values name their outer response."""
    index = data.draw(st.integers(0, len(inner) - 1))
    request = inner[index]
    answer = e["again"].answer(request.input)
    base = int.from_bytes(answer.output(0)[3], "little")
    del answer
    responses = expected[base // 100 - 1]
    if len(responses) < 3 and data.draw(st.booleans()):
        responses.append(base + len(responses) + 1)
        e["again"].respond(request, responses[-1])
    else:
        e["again"].end(request)
        inner.pop(index)
