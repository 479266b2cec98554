"""Runs that were written to JSON files, read again: tisfast's own and perf_analyzer's exports.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from tisfast.bench.flags import parser
from tisfast.bench.histogram import Histogram
from tisfast.bench.json_file import read_json
from tisfast.bench.json_output import SCHEMA, unpacked
from tisfast.errors import BadRequest, ConfigError

FILE_BYTES_MAX: Final = 1 << 30
SLICE_NS: Final = 100_000_000
"""Of perf_analyzer's single requests: pieces of time as tisfast's own."""
SLICES_MAX: Final = 1_000_000


LOAD_FLAGS: Final = (
    "mix",
    "replay",
    "replay_speed",
    "service_kind",
    "endpoint",
    "streaming",
    "request_distribution",
    "request_intervals",
    "request_rate_ramp",
    "fixed_schedule",
    "request_period",
    "num_of_sequences",
    "sequence_length",
    "sequence_length_variation",
    "serial_sequences",
    "seed",
    "connections",
    "input_data",
    "zero",
    "data_directory",
    "shape",
    "string_length",
    "string_data",
    "request_parameter",
    "input_tensor_format",
    "output_tensor_format",
)
"""They say what is sent: runs that differ in one of them are not alike.  How long it is measured may differ."""


class Piece(NamedTuple):
    """What was answered within some seconds."""

    seconds: float
    responses: int
    latency: Histogram


@dataclass(frozen=True)
class Saved:
    """A run.  levels: the pieces of each, by mode and value; setup: what must be alike in two that are compared.

    alternated: each piece is a window, and belongs to one of the other server.
    """

    path: str
    url: str
    setup: Mapping[str, str]
    levels: Mapping[tuple[str, float], tuple[Piece, ...]]
    batch_size: int = 1
    errors: Mapping[tuple[str, float], int] = field(default_factory=dict)
    alternated: bool = False


def read_document(path: str) -> dict[str, Any]:
    """The JSON object of a file.  Raises BadRequest."""
    wrote = "name a file that tisfast bench --json wrote"
    remedies = (wrote, "measure less at one time", f"it was cut, or is another: {wrote}")
    found = read_json(path, path, FILE_BYTES_MAX, remedies)
    if not isinstance(found, dict):
        raise BadRequest(f"{path} is no JSON object; {wrote}")
    return found


def read_run(path: str) -> Saved:
    """A file of --json or of --profile-export-file.  Raises BadRequest."""
    document = read_document(path)
    try:
        if "experiments" in document:
            return _exported(path, document)
        if document.get("schema") != SCHEMA:
            raise BadRequest(
                f'{path}: "schema" is {document.get("schema")!r}, and {SCHEMA!r} is read; write it with this '
                "version's tisfast bench --json, or with --profile-export-file"
            )
        return own_run(path, document)
    except KeyError as error:
        raise BadRequest(f"{path} lacks the key {error}: the file was changed or cut; measure again") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadRequest(f"{path} has a value of another kind than its schema says ({error}); measure again") from None


def own_run(path: str, document: Mapping[str, Any]) -> Saved:
    """What --json wrote."""
    target = document["target"]
    setup = {
        "model": f"{target['model']}",
        "protocol": f"{target['protocol']}",
        "batch size": f"{target['batch_size']}",
        "model's version": f"{target['version']}",
        **{f"machine's {name}": str(value) for name, value in document["machine"].items()},
        **_load_flags(path, document["arguments"], document.get("held", {})),
    }
    levels, errors = {}, {}
    for level in document["levels"]:
        key = (str(level["mode"]), float(level["value"]))
        levels[key] = tuple(
            Piece(float(each["seconds"]), int(each["responses"]), unpacked(each["histogram"]))
            for each in level["windows"]
        )
        errors[key] = int(level["errors"]["count"])
    alternated = bool(document["settings"].get("alternated", False))
    return Saved(path, str(target["url"]), setup, levels, int(target["batch_size"]), errors, alternated)


def _load_flags(path: str, arguments: list[str], held: Mapping[str, str]) -> dict[str, str]:
    """What a command line says of the requests, by flag; of files what they held, whatever their names."""
    try:
        given = parser().parse_args(arguments)
    except ConfigError as error:
        raise BadRequest(f"{path}: its arguments are those of another version ({error}); measure again") from None
    told = {f"--{name.replace('_', '-')}": str(getattr(given, name)) for name in LOAD_FLAGS if name not in held}
    return told | {f"content of --{name.replace('_', '-')}": str(text) for name, text in held.items()}


def _exported(path: str, document: Mapping[str, Any]) -> Saved:
    levels = {}
    for experiment in document["experiments"]:
        head = experiment["experiment"]
        key = (str(head["mode"]), float(head["value"]))
        levels[key] = tuple(_sliced(path, experiment["requests"]))
    return Saved(path, "", {"service kind": str(document.get("service_kind", "triton")).lower()}, levels)


def _sliced(path: str, requests: list[Mapping[str, Any]]) -> Iterator[Piece]:
    """Single requests by the time at which they ended."""
    good = [each for each in requests if each["response_timestamps"]]
    if not good:
        return
    began = np.array([int(each["timestamp"]) for each in good], np.int64)
    ended = np.array([int(each["response_timestamps"][-1]) for each in good], np.int64)
    place = (ended - ended.min()) // SLICE_NS
    if int(place.max()) >= SLICES_MAX:
        raise BadRequest(f"{path}: its requests lie {int(place.max()) // 10} s apart; name the export of one run")
    order = np.argsort(place, kind="stable")
    latency, place = (ended - began)[order], place[order]
    ends = np.searchsorted(place, np.arange(int(place[-1]) + 2))
    for first, last in zip(ends[:-1], ends[1:], strict=True):
        counted = Histogram()
        counted.record_all(latency[first:last])
        yield Piece(SLICE_NS / 1e9, int(last - first), counted)
