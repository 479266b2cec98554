"""What `tisfast.serve` and `tisfast.export` can be told about a function and about the server."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypedDict

from tisfast import limits
from tisfast.errors import BadRequest
from tisfast.functions.tensors import Tensor

BATCH_SIZE: Final = 64
"""The largest batch of batch=True."""


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
    if not isinstance(delay, (int, float)) or not 0 <= delay < math.inf:
        raise BadRequest(f"{title}: delay must be a number of seconds from 0, not {delay!r}")
    if delay and not batch_size:
        raise BadRequest(f"{title}: delay={delay!r} is about batches; give batch=, too")
    if processes and instances:
        raise BadRequest(f"{title}: give instances={instances} threads or processes={processes}, not both")
    own = bool(processes or environment)
    return Execution(batch_size, float(delay), processes or instances or 1, own, environment)


def check_known(options: Mapping[str, Any], what: str, *known: type) -> None:
    """Raises BadRequest for an option that nobody knows."""
    names = {name for each in known for name in each.__annotations__}
    wrong = sorted(set(options) - names)
    if wrong:
        raise BadRequest(f"{what} has no option '{wrong[0]}'; there are: {', '.join(sorted(names))}")


def _check_whole(what: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(f"{what} must be a whole number from {least} to {most}, not {value!r}")
