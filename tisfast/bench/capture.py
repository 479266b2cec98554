"""`tisfast bench capture`: a server's trace file as traffic for `--replay`.  Layer 5 (bench).

A trace of level TENSORS has each request's inputs as text: floats with six digits, and of long tensors the beginning.
Requests with such ones are left out, and counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from tisfast.bench.files import is_stdout, is_stream, write_text
from tisfast.bench.inputs import FILE_BYTES_MAX
from tisfast.bench.json_file import parsed, read_json
from tisfast.errors import BadRequest, ConfigError, TisError

INPUT: Final = "TENSOR_QUEUE_INPUT"
WRONG: Final = 99
NS_MAX: Final = 1 << 64
DESCRIBES: Final = """Make traffic for `tisfast bench --replay` of a server's trace files with the level TENSORS.

  tisfast bench capture trace.json traffic.jsonl
  tisfast bench --replay traffic.jsonl
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


@dataclass
class Traced:
    """One request of a trace file."""

    model: str = ""
    version: str = ""
    inner: bool = False  # a step of an ensemble, or a call from model to model: what made it comes again by itself
    first_ns: int | None = None
    inputs: list[dict[str, Any]] = field(default_factory=list)
    lacking: bool = False  # of a tensor not all is there


def main(arguments: Sequence[str]) -> int:
    """Gives the exit code."""
    made = _Parser(
        prog="tisfast bench capture", description=DESCRIBES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("traces", nargs="+", metavar="TRACE", help="files of the server's --trace-config triton,file=")
    made.add_argument("traffic", metavar="TRAFFIC", help="the file that is written")
    made.add_argument("--versions", action="store_true", help="ask for the versions that answered, too")
    try:
        given = made.parse_args(arguments)
        if Path(given.traffic).exists() and not is_stream(given.traffic):
            raise BadRequest(
                f"{given.traffic} exists already, and is not written over: name a new file behind the traces"
            )
        found, left_out = traffic([Path(each) for each in given.traces], versions=given.versions)
        if not found:
            raise BadRequest(
                f"{', '.join(given.traces)}: there is no request with its inputs ({left_out} without); trace with the "
                "levels TIMESTAMPS and TENSORS, and a rate of 1"
            )
        write_text(given.traffic, (json.dumps(each, separators=(",", ":")) + "\n" for each in found))
    except TisError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG
    told = f"{len(found)} requests within {found[-1]['timestamp'] / 1000:.1f} s"
    if left_out:
        told += f"; {left_out} were left out, whose inputs or times are not all in the trace"
    print(told, file=sys.stderr if is_stdout(given.traffic) else sys.stdout)
    return 0


def traffic(paths: Sequence[Path], *, versions: bool = False) -> tuple[list[dict[str, Any]], int]:
    """Lines for --replay in the order of their times, and how many requests were left out.  Raises BadRequest."""
    requests: dict[Any, Traced] = {}
    for path in paths:
        for entry in _entries(path):
            try:
                _note(requests.setdefault(entry.get("id"), Traced()), entry)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise BadRequest(
                    f"{path} has an entry that a trace does not have ({type(error).__name__}: {error}): "
                    f"{json.dumps(entry)[:200]}; name a trace file that is whole"
                ) from None
    outer = [each for each in requests.values() if each.model and not each.inner]
    good = [each for each in outer if each.first_ns is not None and each.inputs and not each.lacking]
    good.sort(key=lambda each: each.first_ns or 0)
    begin = (good[0].first_ns or 0) if good else 0
    lines = [
        {
            "timestamp": ((each.first_ns or 0) - begin) / 1e6,
            "model": each.model,
            **({"version": each.version} if versions else {}),
            "inputs": each.inputs,
        }
        for each in good
    ]
    return lines, len(outer) - len(good)


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    name = "name a trace file"
    remedies = (name, "trace with log-frequency, in several files", name)
    found = read_json(str(path), str(path), FILE_BYTES_MAX, remedies)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BadRequest(f"{path} is no list of objects; name a trace file")
    yield from found


def _note(request: Traced, entry: dict[str, Any]) -> None:
    if "model_name" in entry:
        request.model, request.version = str(entry["model_name"]), str(entry.get("model_version", ""))
        request.inner = bool(entry.get("parent_id"))
    for each in entry.get("timestamps") or ():
        at = int(each["ns"])
        if not 0 <= at < NS_MAX:
            raise ValueError(f"{at:.3g} ns is no time")
        request.first_ns = at if request.first_ns is None else min(request.first_ns, at)
    if entry.get("activity") == INPUT:
        tensor = entry["tensor"]
        try:
            data = parsed(f"[{tensor['data']}]".encode())
        except ValueError:  # it ends with "...", or has a number that JSON does not have
            request.lacking = True
            return
        shape = [int(each) for each in str(tensor["shape"]).split(",") if each]
        named = {"name": tensor["name"], "datatype": tensor["dtype"], "shape": shape, "data": data}
        request.inputs.append(named)
