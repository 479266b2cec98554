"""What `tisfast.serve` and `tisfast.export` can be told about a function and about the server."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypedDict

from tisfast import limits
from tisfast.errors import BadRequest
from tisfast.functions.tensors import Tensor

BATCH_SIZE: Final = 64
"""The largest batch of batch=True."""
DELAY_SECONDS_MAX: Final = limits.CONFIG_MICROSECONDS_MAX // 1_000_000
"""Of the configuration's field, which has microseconds."""
PORT_MAX: Final = 65535


class FunctionOptions(TypedDict, total=False):
    """About a function.

    name: of the model, by default the function's; inputs, outputs: Tensors in place of type hints; sample: arguments of
    a call that tells dtypes and shapes (a tuple, or a dictionary by name); batch: the largest batch, True for 64: the
    function is handed arrays with a batch dimension in front; delay: seconds that a request waits for others to come;
    instances: threads, or processes, that execute it at one time; processes: that many processes in place of threads,
    each with a copy of the function; environment: their Python: a list of requirements, or the path of a
    requirements file, an archive, a virtual environment or an interpreter.
    """

    name: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    sample: Any
    batch: int | bool
    delay: float
    instances: int
    processes: int
    environment: str | os.PathLike[str] | Sequence[str]


class ServerOptions(TypedDict, total=False):
    """About the server.

    host: the address that it listens at, by default 127.0.0.1, so that only this machine reaches it; 0.0.0.0 for all;
    http_port, grpc_port, metrics_port: 0 for any that is free, None for none; log: whether its log tells more than
    warnings; flags: further ones of `tisfast serve`; environ: variables of its process beside those of this one.
    """

    host: str
    http_port: int
    grpc_port: int | None
    metrics_port: int | None
    log: bool
    flags: Sequence[str]
    environ: Mapping[str, str]


class ServeOptions(FunctionOptions, ServerOptions, total=False):
    """All of `tisfast.serve`."""


class Execution(NamedTuple):
    """How a function is executed.  batch_size: 0 for none."""

    batch_size: int
    delay: float
    instances: int
    processes: bool
    environment: Any


def execution_of(options: Mapping[str, Any], title: str) -> Execution:
    """Checked.  Raises BadRequest."""
    batch = options.get("batch", 0)
    batch_size = (BATCH_SIZE if batch else 0) if isinstance(batch, bool) else batch
    delay, instances = options.get("delay", 0.0), options.get("instances", 0)
    processes, environment = options.get("processes", 0), options.get("environment")
    _check_whole(f"{title}: batch", batch_size, 0, limits.FUNCTION_BATCH_SIZE_MAX)
    _check_whole(f"{title}: instances", instances, 0, limits.GUEST_INSTANCES_MAX)
    _check_whole(f"{title}: processes", processes, 0, limits.GUEST_INSTANCES_MAX)
    if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay <= DELAY_SECONDS_MAX:
        raise BadRequest(f"{title}: delay must be a number of seconds from 0 to {DELAY_SECONDS_MAX}, not {delay!r}")
    if delay and not batch_size:
        raise BadRequest(f"{title}: delay={delay!r} is about batches; give batch=, too")
    if processes and instances:
        raise BadRequest(f"{title}: give instances={instances} threads or processes={processes}, not both")
    _check_environment(f"{title}: environment", environment)
    own = bool(processes or environment)
    return Execution(batch_size, float(delay), processes or instances or 1, own, environment)


def check_known(options: Mapping[str, Any], what: str, *known: type) -> None:
    """Raises BadRequest for an option that nobody knows."""
    names = {name for each in known for name in each.__annotations__}
    wrong = sorted(set(options) - names)
    if wrong:
        raise BadRequest(f"{what} has no option '{wrong[0]}'; there are: {', '.join(sorted(names))}")


def check_server(options: Mapping[str, Any]) -> None:
    """The values of ServerOptions.  Raises BadRequest."""
    if not isinstance(options.get("host", ""), str) or "host" in options and not options["host"]:
        raise BadRequest(f"host must be an address as text, like '127.0.0.1', not {options['host']!r:.200}")
    for name in ("http_port", "grpc_port", "metrics_port"):
        value = options.get(name, 0)
        if value is not None or name == "http_port":
            _check_whole(name, value, 0, PORT_MAX)
    if not isinstance(options.get("log", False), bool):
        raise BadRequest(f"log must be True or False, not {options['log']!r:.200}")
    flags = options.get("flags", ())
    if isinstance(flags, str) or not isinstance(flags, Sequence) or not all(isinstance(each, str) for each in flags):
        raise BadRequest(f"flags must be a list of text, like ['--log-verbose=1'], not {flags!r:.200}")
    _check_environ(options.get("environ"))


def in_options(text: str) -> str:
    """What a server says of its flags, by the names of options."""
    text = re.sub(r"--(http|grpc|metrics)-port\b", r"\1_port=", text)
    return re.sub(r"--(http|grpc|metrics)-address\b", "host=", text)


def _check_environ(given: Any) -> None:
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise BadRequest(f"environ must be a mapping of names to text, not {given!r:.200}")
    for name, value in given.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise BadRequest(f"environ has {name!r:.200}, which is no name of a variable")
        if not isinstance(value, str) or "\0" in value:
            raise BadRequest(f"environ: the value of {name} must be text without zeros, not {value!r:.200}")


def _check_environment(what: str, given: Any) -> None:
    if given is None or isinstance(given, (str, os.PathLike)):
        return
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise BadRequest(f"{what} must be a path, or a list of requirements as text, not {given!r:.200}")


def _check_whole(what: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(f"{what} must be a whole number from {least} to {most}, not {value!r}")
