"""Ensembles: which models, and which tensors between them.  Layer 2 (config).

What one file can tell.  What its composing models make of it is checked when they are loaded (ensemble_join).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tisfast import limits
from tisfast.config import error_texts
from tisfast.config.error_report import KeyPath, Report
from tisfast.config.schema import Message

PLATFORM: Final = "ensemble"
SCHEDULING: Final = "ensemble_scheduling"
LATEST: Final = -1


@dataclass(frozen=True)
class Step:
    """One model of an ensemble.

    version: -1 for the newest; inputs: (input of the model, ensemble tensor) each; outputs likewise.
    """

    model: str
    version: int
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class EnsembleConfig:
    """max_inflight_requests: of each step, over all requests of the ensemble; 0 for no bound of its own."""

    steps: tuple[Step, ...]
    max_inflight_requests: int


def read(message: Message, report: Report) -> EnsembleConfig | None:
    """The steps of a normalised message, None when it is no ensemble; what is wrong goes to the report."""
    asks = message.HasField(SCHEDULING)
    if message.platform != PLATFORM:
        if asks:
            _refuse_platform(message, report)
        return None
    if message.backend:
        report.wrong(f"Ensemble model '{message.name}' must have platform type 'ensemble' and empty backend type",
                     ("backend",), hint="remove 'backend'")  # fmt: skip
    if not asks:
        report.wrong(f"ensemble scheduling must be set for ensemble {message.name} whose platform is ensemble",
                     ("platform",), hint="add ensemble_scheduling { step { ... } }")  # fmt: skip
        return None
    _refuse_fields(message, report)
    scheduling = message.ensemble_scheduling
    if not scheduling.step:
        report.wrong(f"must specify 'step' for ensemble '{message.name}'", (SCHEDULING,))
    if 0 < len(scheduling.step) <= limits.ENSEMBLE_STEPS_MAX:  # the work grows with the square of the steps
        _Graph(message, report).check()
    steps = tuple(
        Step(step.model_name, step.model_version, _pairs(step.input_map), _pairs(step.output_map))
        for step in scheduling.step
    )
    return EnsembleConfig(steps, scheduling.max_inflight_requests)


def _pairs(mapping: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(mapping.items()))


def _refuse_platform(message: Message, report: Report) -> None:
    name = message.name
    if message.platform or message.backend:
        report.wrong(f"ensemble scheduling cannot be set for model '{name}' whose platform is not ensemble",
                     (SCHEDULING,), hint='set platform: "ensemble" and remove \'backend\'')  # fmt: skip
    else:
        report.wrong(error_texts.no_backend(name), (SCHEDULING,), hint='write platform: "ensemble"')


def _refuse_fields(message: Message, report: Report) -> None:
    name, hint = message.name, "write it into the composing models' configurations"
    if message.instance_group:
        report.wrong(f"instance group should not be specified for ensemble '{name}'", ("instance_group",), hint=hint)
    if message.HasField("optimization"):
        report.wrong(f"optimization should not be specified for ensemble '{name}'", ("optimization",), hint=hint)
    if message.model_warmup:
        report.wrong(f"model_warmup can not be specified for ensemble '{name}'", ("model_warmup",), hint=hint)
    count = len(message.ensemble_scheduling.step)
    if count > limits.ENSEMBLE_STEPS_MAX:
        report.wrong(f"ensemble '{name}' has {count} steps, more than {limits.ENSEMBLE_STEPS_MAX}", (SCHEDULING,),
                     hint="split it into several ensembles")  # fmt: skip


class _Graph:
    """The ensemble's tensors, and which are made of which."""

    def __init__(self, message: Message, report: Report) -> None:
        self.message, self.report = message, report
        self.name = message.name
        self.made_of: dict[str, list[str]] = {}
        self.used: set[str] = set()

    def check(self) -> None:
        """Every rule of ensembles that one file can break; the later ones only where the earlier ones are kept."""
        before = len(self.report.errors)
        for index, step in enumerate(self.message.ensemble_scheduling.step):
            self._step(index, step)
        if len(self.report.errors) > before:
            return
        inputs = [tensor.name for tensor in self.message.input]
        for index, name in enumerate(inputs):
            if name not in self.used:
                self._wrong(f"ensemble input '{name}' for ensemble {self.name}' is not used", ("input", index))
        self._flow(inputs)

    def _wrong(self, text: str, path: KeyPath, hint: str = "") -> None:
        self.report.wrong(text, path, hint=hint)

    def _step(self, index: int, step: Message) -> None:
        path: KeyPath = (SCHEDULING, "step", index)
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                self._wrong(f"must specify '{field}' in step {index} of ensemble '{self.name}'", path)
        if step.model_namespace:
            self._wrong(f"'model_namespace' in step {index} of ensemble '{self.name}' is known, but not served",
                        (*path, "model_namespace"), "remove it: --model-namespacing finds the model")  # fmt: skip
        inputs = {tensor.name for tensor in self.message.input}
        for tensor in sorted(step.output_map.values()):
            if tensor in self.made_of:
                self._wrong(f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble "
                            f"'{self.name}' step {index}", (*path, "output_map"))  # fmt: skip
            if tensor in inputs:
                self._wrong(f"ensemble tensor '{tensor}' is an input of ensemble '{self.name}' and cannot be an output "
                            f"of its step {index}", (*path, "output_map"), "rename one of the two")  # fmt: skip
            self.made_of[tensor] = sorted(step.input_map.values())
        self.used.update(step.input_map.values())

    def _flow(self, inputs: list[str]) -> None:
        ready = self._ready(inputs)
        outputs = {tensor.name for tensor in self.message.output}
        for index, tensor in enumerate(self.message.output):
            name, path = tensor.name, ("output", index)
            if name not in ready and name not in self.made_of and name not in self.used:
                self._wrong(f"ensemble output '{name}' for ensemble {self.name}' is not used", path)
            elif name not in ready:
                self._wrong(f"output '{name}' for ensemble '{self.name}' is not written: at least one of its depending "
                            f"tensors, '{self._unconnected(name, ready)}', is not connected", path)  # fmt: skip
        for name in sorted({*self.made_of, *self.used} - outputs):
            if name not in ready or name not in self.used:
                self._wrong(f"ensemble tensor '{name}' is unused in ensemble '{self.name}'", (SCHEDULING,),
                            "leave it out of the map, or make it an output of the ensemble")  # fmt: skip

    def _ready(self, inputs: list[str]) -> set[str]:
        """Tensors that come into being once the inputs are there."""
        ready = set(inputs)
        left = dict(self.made_of)
        while made := [name for name, sources in left.items() if ready.issuperset(sources)]:
            ready.update(made)
            for name in made:
                del left[name]
        return ready

    def _unconnected(self, name: str, ready: set[str]) -> str:
        """The farthest tensor that an output waits for."""
        seen = {name}
        while further := next(self._missing(name, ready | seen), ""):
            seen.add(further)
            name = further
        return name

    def _missing(self, name: str, there: set[str]) -> Iterator[str]:
        return (source for source in self.made_of.get(name, ()) if source not in there)
