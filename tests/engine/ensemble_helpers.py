"""An ensemble of models with fake links: what its tests drive.  Tensors are one INT32 each unless told otherwise."""

from __future__ import annotations

import json
import struct

from tests.engine.helpers import settings
from tisfast.config.ensemble_join import join
from tisfast.config.model_config import finish, parse, signature_fields
from tisfast.engine.ensemble_graph import EnsembleGraph
from tisfast.engine.ensemble_runtime import EnsembleRuntime
from tisfast.engine.registry import Registry
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, KeepingSink, cancel, submit
from tisfast.native.memory import Arena
from tisfast.wire.compose import ComposeFields, compose_request, input_tensors
from tisfast.wire.joined_answer import join as join_answer
from tisfast.wire.signature import ModelSignature
from tisfast.wire.tensors import in_block

INT32, ONE = 8, (1,)
DEFAULT = object()


class Model:
    """A model that does what the test says; `compute` takes and gives {name: number}."""

    def __init__(self, clock, name, inputs=("A",), outputs=("B",), *, compute=None, optional=(), decoupled=0, **how):
        mbs = how.pop("max_batch_size", 0)
        specs = [(each, INT32, ONE, each in optional, False) for each in inputs]
        self.signature = ModelSignature(name, "1", mbs, decoupled, specs, [(each, INT32, ONE) for each in outputs])
        self.arena = Arena(f"in-{name}", 1 << 20, 1 << 20)
        self.output = Arena(f"out-{name}", 1 << 20, 1 << 20)
        scheduler = settings(dynamic=False, max_batch_size=mbs, **how)
        self.runtime = ModelRuntime(self.signature, self.arena, scheduler, clock, {})
        self.link = FakeLink(f"{name}_0", self.runtime, clock)
        self.runtime.add_link(self.link)
        self.runtime.set_state(True, "")
        self.compute = compute or (lambda values: dict.fromkeys(outputs, sum(values.values())))

    def answer(self, request, made=DEFAULT, parameters=b""):
        """Its answer to a request; made: {output: number}, what `compute` says by default."""
        values = {each.name: struct.unpack("<i", each.bytes()[:4])[0] for each in input_tensors(request)}
        made = self.compute(values) if made is DEFAULT else made
        batch = (1,) if self.signature.max_batch_size else ()
        tensors = []
        for name, value in made.items():
            block = self.output.take_block(4)
            memoryview(block)[:4] = struct.pack("<i", value)
            tensors.append(in_block(name, INT32, batch + ONE, block, 0, 4))
        return join_answer(request, tensors, parameters)

    def run(self, **how):
        """Execute the oldest request."""
        self.link.execute(answer=lambda request: self.answer(request, **how))

    def fail(self, status=13):
        self.link.execute(status=status)

    def open(self):
        """`execute` of a decoupled model returns; the request."""
        return self.link.execute_streams()[0]

    def respond(self, request, value, output="B", final=False):
        answer = None if value is None else self.answer(request.input, {output: value})
        self.link.respond(request, answer=answer, final=final)

    def end(self, request, status=0):
        self.link.respond(request, status=status, final=True)

    @property
    def waiting(self):
        """Requests dispatched and not executed."""
        return len(self.link.dispatched)

    @property
    def used_blocks(self):
        return self.arena.used_blocks + self.output.used_blocks


def step(model, inputs, outputs):
    """inputs, outputs: "model's name=ensemble's name", with spaces between."""
    pairs = [("input_map", pair) for pair in inputs.split()] + [("output_map", pair) for pair in outputs.split()]
    maps = "".join(f'{key} {{ key: "%s" value: "%s" }} ' % tuple(pair.split("=")) for key, pair in pairs)
    return f'step {{ model_name: "{model}" model_version: -1 {maps} }} '


def chain(*models):
    """IN -> OUT through models that make B of A."""
    names = ["IN", *(f"t{i}" for i in range(1, len(models))), "OUT"]
    return "".join(step(model, f"A={names[i]}", f"B={names[i + 1]}") for i, model in enumerate(models))


class Ensemble:
    """An ensemble, its models, and what it answered: (id, outputs or (status, message), final) in `calls`."""

    def __init__(self, steps, *models, inputs="IN", outputs="OUT", most=0, optional="", mbs=0, clock=None):
        self.clock = clock or FakeClock()
        made = [Model(self.clock, each) if isinstance(each, str) else Model(self.clock, **each) for each in models]
        self.models = {each.signature.name: each for each in made}
        self.registry = Registry()
        for each in made:
            self.registry.add(each.runtime)
        text = f'name: "e" platform: "ensemble" max_batch_size: {mbs} '
        text += "".join(self._tensor("input", name, optional.split()) for name in inputs.split())
        text += "".join(self._tensor("output", name) for name in outputs.split())
        text += f"ensemble_scheduling {{ {steps} max_inflight_requests: {most} }}"
        config = finish(parse(text, "e/config.pbtxt"), "e")
        signatures = [self.models[each.model].signature for each in config.ensemble.steps]
        joined = join(config, signatures)
        graph = EnsembleGraph(joined.config, joined.levels, [each.decoupled for each in signatures])
        fields = signature_fields(joined.config)
        self.signature = ModelSignature("e", "1", mbs, joined.config.decoupled, *fields)
        self.arena = Arena("in-e", 1 << 20, 1 << 20)
        self.runtime = EnsembleRuntime(self.signature, self.arena, graph, self.clock, {}, self.registry.resolve)
        self._replies = []

    def _tensor(self, role, name, optional=()):
        more = "optional: true" if name in optional else ""
        return f'{role} {{ name: "{name}" data_type: TYPE_INT32 dims: 1 {more} }} '

    def __getitem__(self, name):
        return self.models[name]

    def send(self, id="r", outputs=None, trace=None, fields=None, **values):
        """One request; values: by input."""
        block = self.arena.take_block(64 * len(values) or 64)
        batch = (1,) if self.signature.max_batch_size else ()
        tensors = []
        for i, (name, value) in enumerate(values.items()):
            memoryview(block)[64 * i : 64 * i + 4] = struct.pack("<i", value)
            tensors.append(in_block(name, INT32, batch + ONE, block, 64 * i, 4))
        fields = fields or ComposeFields()
        fields.id, fields.requested = id, outputs
        input = compose_request(self.signature, self.arena, tensors, fields)
        calls = []
        self._replies.append((id, calls))
        return submit(self.runtime, input, KeepingSink(calls), trace)

    def cancel(self, request):
        cancel(self.runtime, request)

    def told(self, id="r"):
        """What came back of that request: [(outputs or (status, message), final)]."""
        return [told for name, calls in self._replies if name == id for told in map(self._told, calls)]

    def _told(self, call):
        status, what, final = call
        if status or what is None:
            return ((status, what) if status else None), final
        outputs = [what.output(i) for i in range(what.count)]
        return {name: struct.unpack("<i", data[:4])[0] for name, _, _, data in outputs}, final

    def parameters(self, id="r"):
        """Of the answers to that request."""
        answers = [call[1] for name, calls in self._replies if name == id for call in calls if call[1] is not None]
        return [json.loads(answer.parameters) if answer.parameters else None for answer in answers]

    def forget(self):
        """The clients have read all answers."""
        self._replies.clear()

    @property
    def used_blocks(self):
        """Of all arenas: none when all answers are read and forgotten."""
        return self.arena.used_blocks + sum(model.used_blocks for model in self.models.values())
