"""Input data that users give: JSON files and folders in perf_analyzer's forms, and what it refuses.  Layer 5 (bench).

Beyond perf_analyzer: whole numbers for floats, nested lists, numbers for FP16 and BF16, `.npy` files, one free
dimension by the number of elements, "parameters" of a request, and tolerances of expected outputs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tisfast import limits
from tisfast.bench.expected import Expected, Tolerance
from tisfast.bench.json_file import read_json
from tisfast.bench.tensor_data import Place, array_of_file, array_of_json
from tisfast.client import ModelMetadata, TensorMetadata
from tisfast.client.arrays import Array, tensor_of
from tisfast.errors import BadRequest
from tisfast.wire.buffer_tensor import BufferTensor

FILE_BYTES_MAX: Final = 1 << 30
"""Of one JSON file of input data."""
STEPS_MAX: Final = 1_000_000
"""Of all input data together."""
FORM: Final = '{"data": [{"INPUT": [...], ...}, ...]}'
OTHER_KINDS: Final = {
    "payload": "a body for --service-kind openai",
    "session_id": "a conversation for --service-kind openai",
    "delay": "a conversation for --service-kind openai",
    "TORCHSERVE_INPUT": "a file for --service-kind torchserve",
    "message_generator": "messages for --service-kind dynamic_grpc",
    "ipc_stream": "messages for --service-kind dynamic_grpc",
}
IGNORED: Final = ("model",)
PARAMETERS: Final = "parameters"
TIMESTAMP: Final = "timestamp"
TIMESTAMP_MS_MAX: Final = 1e15
"""Above any time since 1970 in milliseconds, and below those in nanoseconds."""


@dataclass(frozen=True)
class DataStep:
    """One request's data, without the batch's dimension.  timestamp_ms: of a fixed schedule."""

    inputs: Mapping[str, Array]
    parameters: Mapping[str, bool | int | str | float] = field(default_factory=dict)
    expected: Mapping[str, tuple[Array, Tolerance]] = field(default_factory=dict)
    timestamp_ms: float | None = None


@dataclass(frozen=True)
class Request:
    """What is sent, and what is checked of the answer."""

    tensors: tuple[BufferTensor, ...]
    parameters: Mapping[str, bool | int | str | float]
    check: Expected | None


@dataclass(frozen=True)
class Reading:
    """How input data is read.

    batches: the model's max_batch_size; shapes: of --shape; optional: inputs that a step may leave out; tolerance: of
    expected outputs that say none.
    """

    metadata: ModelMetadata
    batches: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    optional: Collection[str] = ()
    tolerance: Tolerance = Tolerance()

    def dims(self, spec: TensorMetadata) -> tuple[int, ...]:
        """Without the batch's dimension; free ones are those of --shape, where it says them."""
        dims = spec.shape[1:] if self.batches else spec.shape
        given = self.shapes.get(spec.name)
        if given is None:
            return tuple(dims)
        if len(given) != len(dims) or any(want not in (-1, have) for want, have in zip(dims, given, strict=True)):
            raise BadRequest(
                f"--shape {spec.name}:{','.join(map(str, given))} does not fit the input, whose shape is {list(dims)} "
                "without the batch's dimension: give a number above 0 for each -1"
            )
        return given


@dataclass(frozen=True)
class InputData:
    """Streams of steps: a sequence plays one stream, other requests take all steps in turn."""

    metadata: ModelMetadata
    batches: int
    streams: tuple[tuple[DataStep, ...], ...]

    @property
    def steps(self) -> int:
        """In all streams."""
        return sum(len(stream) for stream in self.streams)

    def requests(self, batch_size: int = 1) -> list[Request]:
        """One for each step; a batch has so many steps, from each one on.  Raises BadRequest where shapes differ."""
        steps = [step for stream in self.streams for step in stream]
        return [
            self._request([steps[(at + more) % len(steps)] for more in range(batch_size)], at)
            for at in range(len(steps))
        ]

    def timestamps(self) -> list[float]:
        """When each step is sent, milliseconds from the start.  Raises BadRequest for one that does not say it."""
        return all_timestamps([step.timestamp_ms for stream in self.streams for step in stream])

    def _request(self, steps: Sequence[DataStep], at: int) -> Request:
        tensors = []
        for spec in self.metadata.inputs:
            given = [step.inputs[spec.name] for step in steps if spec.name in step.inputs]
            if given:
                tensors.append(tensor_of(spec.name, spec.datatype, self._stacked(spec.name, given, len(steps), at)))
        expected = {}
        for name in steps[0].expected:
            found = [step.expected[name] for step in steps if name in step.expected]
            expected[name] = (self._stacked(name, [array for array, _ in found], len(steps), at), found[0][1])
        return Request(tuple(tensors), steps[0].parameters, Expected(expected) if expected else None)

    def _stacked(self, name: str, arrays: Sequence[Array], count: int, at: int) -> Array:
        if not self.batches:
            return arrays[0]
        shapes = {array.shape for array in arrays}
        if len(arrays) < count or len(shapes) > 1:
            what = f"shapes {sorted(map(list, shapes))}" if len(shapes) > 1 else f"{name} in {len(arrays)} of them"
            raise BadRequest(
                f"the {count} steps from step {at} on make one batch of -b {count}, and have {what}: give all steps of "
                f"'{name}' one shape, or use -b 1"
            )
        return np.stack(arrays)


def all_timestamps(found: Sequence[float | None]) -> list[float]:
    """Raises BadRequest for a step that has none."""
    times = [each for each in found if each is not None]
    if len(times) < len(found):
        raise BadRequest(
            f'--fixed-schedule: step {found.index(None)} of the input data has no "timestamp"; give each step its '
            "milliseconds from the start"
        )
    last, most = max(times, default=0.0), limits.BENCH_SCHEDULE_SECONDS_MAX
    if last > most * 1000:
        raise BadRequest(
            f'--fixed-schedule: step {times.index(last)} of the input data has the "timestamp" {last:.15g}, and a '
            f"schedule ends after {most * 1000:.0f} ms ({most:g} s) at the latest; count milliseconds from its start"
        )
    return times


def read_inputs(paths: Sequence[str], reading: Reading) -> InputData:
    """All files and folders of --input-data; their streams add up.  Raises BadRequest."""
    known = {each.name for each in reading.metadata.inputs}
    for name in reading.shapes:
        if name not in known:
            raise BadRequest(
                f"--shape names the input '{name}', which model '{reading.metadata.name}' does not have; its inputs "
                f"are {', '.join(sorted(known)) or 'none'}"
            )
    streams: list[tuple[DataStep, ...]] = []
    for path in paths:
        streams += [_folder(Path(path), reading)] if Path(path).is_dir() else _file(Path(path), reading)
    data = InputData(reading.metadata, reading.batches, tuple(streams))
    if data.steps > STEPS_MAX:
        raise BadRequest(f"--input-data has {data.steps} steps, and at most {STEPS_MAX} are read: leave some out")
    return data


def _folder(folder: Path, reading: Reading) -> tuple[DataStep, ...]:
    """A file for each input, named as it: raw bytes, lines of BYTES, or .npy.  Those of outputs are expected."""
    inputs, expected = {}, {}
    for spec in reading.metadata.inputs:
        path = _of_tensor(folder, spec.name)
        if path is not None:
            inputs[spec.name] = array_of_file(path, spec, reading.dims(spec))
        elif spec.name not in reading.optional:
            raise BadRequest(
                f"--input-data {folder}: the folder has no file {spec.name} (or {spec.name}.npy) for that input"
            )
    for spec in reading.metadata.outputs:
        path = _of_tensor(folder, spec.name)
        if path is not None:
            expected[spec.name] = (array_of_file(path, spec, reading.dims(spec)), reading.tolerance)
    return (DataStep(inputs, {}, expected),)


def _of_tensor(folder: Path, name: str) -> Path | None:
    if "/" in name or name in (".", ".."):
        return None
    return next((path for path in (folder / name, folder / f"{name}.npy") if path.is_file()), None)


def read_streams(path: Path, form: str) -> list[list[Any]]:
    """Only the steps of a JSON file, by streams.  Raises BadRequest."""
    document = _document(path, form, {"data"})
    return _streams(path, "data", document["data"])


def _document(path: Path, form: str, keys: set[str]) -> dict[str, Any]:
    document = _json(path, form)
    if not isinstance(document, dict) or not isinstance(document.get("data"), list):
        raise BadRequest(f'--input-data {path}: the file has no list "data"; its form is {form}')
    strange = sorted(set(document) - keys)
    if strange:
        known = " and ".join(f'"{key}"' for key in sorted(keys))
        raise BadRequest(f'--input-data {path}: key "{strange[0]}" is not known; write only {known}')
    return document


def _file(path: Path, reading: Reading) -> list[tuple[DataStep, ...]]:
    document = _document(path, FORM, {"data", "validation_data"})
    streams = _streams(path, "data", document["data"])
    wanted: list[list[Any]] = [[None] * len(stream) for stream in streams]
    if "validation_data" in document:
        wanted = _streams(path, "validation_data", document["validation_data"])
        if [len(each) for each in wanted] != [len(each) for each in streams]:
            raise BadRequest(
                f'--input-data {path}: "validation_data" has {[len(each) for each in wanted]} steps by stream '
                f'and "data" {[len(each) for each in streams]}: give each step its expected outputs, or none'
            )
    return [
        tuple(
            _step(
                Place(str(path), f"data[{at}]" if len(streams) == 1 else f"data[{number}][{at}]"),
                entry,
                outputs,
                reading,
            )
            for at, (entry, outputs) in enumerate(zip(stream, expected, strict=True))
        )
        for number, (stream, expected) in enumerate(zip(streams, wanted, strict=True))
    ]


def _json(path: Path, form: str) -> Any:
    remedies = ("name a JSON file, a folder, zero or random", "cut it in two", f"its form is {form}")
    return read_json(str(path), f"--input-data {path}: it", FILE_BYTES_MAX, remedies)


def _streams(path: Path, key: str, data: Any) -> list[list[Any]]:
    """A list of steps is one stream; a list of lists has several."""
    if not isinstance(data, list) or not data:
        raise BadRequest(f'--input-data {path}: "{key}" is empty or no list; its form is {FORM}')
    streams = data if all(isinstance(each, list) for each in data) else [data]
    for number, stream in enumerate(streams):
        if not stream:
            raise BadRequest(
                f'--input-data {path}: {key}[{number}] has no steps; write at least one {{"INPUT": [...]}}'
            )
        for at, step in enumerate(stream):
            if not isinstance(step, dict):
                raise BadRequest(
                    f'--input-data {path}: step {at} of "{key}" is {json.dumps(step)[:40]}; write {{"INPUT": [...]}}, '
                    "or only lists of such steps, for several streams"
                )
    return list(streams)


def _step(place: Place, entry: Mapping[str, Any], outputs: Any, reading: Reading) -> DataStep:
    specs = {spec.name: spec for spec in reading.metadata.inputs}
    inputs: dict[str, Array] = {}
    parameters: Mapping[str, Any] = {}
    for key, value in entry.items():
        here = place.at(key)
        if key in specs:
            inputs[key] = array_of_json(here, value, specs[key], reading.dims(specs[key]))
        elif key == PARAMETERS:
            parameters = _parameters(here, value)
        elif key in OTHER_KINDS:
            raise here.wrong(f"is {OTHER_KINDS[key]}", "a model's request has inputs by their names")
        elif key not in (*IGNORED, TIMESTAMP):
            raise here.wrong("is no input of the model", f"its inputs are {', '.join(specs) or 'none'}")
    for name in specs:
        if name not in inputs and name not in reading.optional:
            raise place.wrong(f"lacks the input '{name}'", "give each step all inputs that are not optional")
    return DataStep(inputs, parameters, dict(_expected(place, outputs, reading)), timestamp_of(place, entry))


def timestamp_of(place: Place, entry: Mapping[str, Any]) -> float | None:
    """When a step is sent, ms from the start; None where it does not say it.  Raises BadRequest."""
    value = entry.get(TIMESTAMP)
    if TIMESTAMP not in entry:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= TIMESTAMP_MS_MAX:
        raise place.at(TIMESTAMP).wrong(
            f"is {json.dumps(value)[:40]}",
            f"write milliseconds from the start of the schedule, {TIMESTAMP_MS_MAX:g} at most",
        )
    return float(value)


def request_of(place: Place, entry: Mapping[str, Any], reading: Reading) -> Request:
    """One step by itself; its tensors are as the model gets them, with the batch's dimension.  Raises BadRequest."""
    whole = replace(reading, batches=0)
    return InputData(whole.metadata, 0, ((_step(place, entry, None, whole),),)).requests()[0]


def _parameters(here: Place, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(each, bool | int | str | float) for each in value.values()):
        raise here.wrong(
            f"is {json.dumps(value)[:40]}", "write an object of names with strings, numbers, true or false"
        )
    return value


def _expected(place: Place, outputs: Any, reading: Reading) -> Iterator[tuple[str, tuple[Array, Tolerance]]]:
    specs = {spec.name: spec for spec in reading.metadata.outputs}
    for name, given in (outputs or {}).items():
        here = Place(place.file, f"validation_{place.key}").at(name)
        if name not in specs:
            raise here.wrong("is no output of the model", f"its outputs are {', '.join(specs) or 'none'}")
        tolerance, value = reading.tolerance, given
        if isinstance(given, dict):
            tolerance = Tolerance(*(_bound(here, given, key, getattr(tolerance, key)) for key in Tolerance._fields))
            value = {key: each for key, each in given.items() if key not in Tolerance._fields}
        yield name, (array_of_json(here, value, specs[name], reading.dims(specs[name])), tolerance)


def _bound(here: Place, value: Mapping[str, Any], key: str, default: float) -> float:
    found = value.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= sys.float_info.max:
        raise here.at(key).wrong(f"is {json.dumps(found)[:40]}", "write a number of 0 or more")
    return float(found)
