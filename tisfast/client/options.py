"""What a client and a call can be told.  Layer 3 (client)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from tisfast import limits
from tisfast.client.address import Tls
from tisfast.client.calls import Parameters
from tisfast.client.retries import NO_RETRIES, Retries
from tisfast.errors import BadRequest
from tisfast.wire.client_request import WantedOutput, WantedOutputs

if TYPE_CHECKING:
    from tisfast.client.checks import TensorMetadata


class ClientOptions(TypedDict, total=False):
    """Of a client.

    timeout: seconds that a call may take; retries: Retries, or their count, 0 for none; connections: at most so many;
    tls: of https:// and grpcs://; headers: of each request (metadata over gRPC); token: sent as "Authorization: Bearer
    TOKEN"; compression: of requests and answers; shared_memory: large tensors go through it: "auto" where the server
    is on this machine and takes it, True: else an error, False: never; concurrency: of `submit`, requests at one time.
    """

    timeout: float
    retries: Retries | int
    connections: int
    tls: Tls
    headers: Mapping[str, str]
    token: str
    compression: Literal["", "gzip", "deflate"]
    shared_memory: bool | Literal["auto"]
    concurrency: int


class CallOptions(TypedDict, total=False):
    """Of one inference.

    timeout: seconds that it may take, of which the server is told, too; parameters: of the request, for the model;
    id: of the request; outputs: names of those that are wanted, all by default; classes: so many best classes instead
    of each output, or of those that are named; priority: 1 is the highest; headers: of this request; retry: False
    makes it once.
    """

    timeout: float
    parameters: Mapping[str, bool | int | str | float]
    id: str
    outputs: Sequence[str]
    classes: int | Mapping[str, int]
    priority: int
    headers: Mapping[str, str]
    retry: bool


CLIENT_OPTIONS: Final = frozenset(ClientOptions.__annotations__)
CALL_OPTIONS: Final = frozenset(CallOptions.__annotations__)
NO_OPTIONS: Final = CallOptions()
CODINGS: Final = ("", "gzip", "deflate")


def split_options(
    named: dict[str, Any], inputs: Mapping[str, TensorMetadata] | None
) -> tuple[dict[str, Any], CallOptions]:
    """Of a call's keywords, the inputs and the options: an input that is named as an option is an input."""
    if not named:
        return named, NO_OPTIONS
    options = CallOptions()
    values = {}
    for name, value in named.items():
        if name in CALL_OPTIONS and (inputs is None or name not in inputs):
            options[name] = value  # type: ignore[literal-required]
        else:
            values[name] = value
    return values, options


def checked_call(options: CallOptions) -> CallOptions:
    """Raises BadRequest for a name that is no option of a call."""
    for name in options:
        if name not in CALL_OPTIONS:
            raise BadRequest(f"'{name}' is no option of a call, which are {', '.join(sorted(CALL_OPTIONS))}")
    return options


def call_timeout(options: CallOptions) -> float | None:
    """Seconds, None when the call says nothing.  Raises BadRequest."""
    return seconds_of(options["timeout"]) if options.get("timeout") is not None else None


def as_seconds(timeout: Any) -> float | None:
    """A time that can be waited for; scalars of numpy are numbers, too.  None: it is no such time."""
    seconds = float(timeout) if isinstance(timeout, int | float | Real) else 0.0
    return seconds if 0 < seconds <= limits.CLIENT_SECONDS_MAX else None


def seconds_of(timeout: Any) -> float:
    """A timeout that can be waited for.  Raises BadRequest."""
    seconds = as_seconds(timeout)
    if seconds is None:
        raise BadRequest(f"timeout={timeout!r} must be seconds, more than 0 and at most {limits.CLIENT_SECONDS_MAX}")
    return seconds


def request_parameters(options: CallOptions) -> Parameters | None:
    """The parameters of a request."""
    if not options.get("priority"):
        parameters = options.get("parameters")
        return dict(parameters) if parameters else None
    return {**options.get("parameters", {}), "priority": options["priority"]}


def wanted_outputs(options: CallOptions, known: tuple[TensorMetadata, ...], model: str) -> WantedOutputs | None:
    """What is asked for, None for all.  Raises BadRequest for an output that the model does not have."""
    names, classes = options.get("outputs"), options.get("classes")
    if names is None and classes is None:
        return None
    have = [each.name for each in known]
    names = have if names is None else [names] if isinstance(names, str) else list(names)
    counts = dict.fromkeys(names, classes) if isinstance(classes, int) else dict(classes or {})
    for name in (*names, *counts):
        if name not in have:
            raise BadRequest(f"model '{model}' has no output '{name}', its outputs are {', '.join(have)}")
    return WantedOutputs([WantedOutput(name, classes=counts.get(name) or 0) for name in names])


def checked_client(options: ClientOptions) -> ClientOptions:
    """Options with their defaults.  Raises BadRequest."""
    for name in options:
        if name not in CLIENT_OPTIONS:
            raise BadRequest(f"'{name}' is no option of a client, which are {', '.join(sorted(CLIENT_OPTIONS))}")
    found: ClientOptions = {
        "timeout": limits.CLIENT_SECONDS,
        "retries": Retries(),
        "connections": limits.CLIENT_CONNECTIONS,
        "headers": {},
        "token": "",
        "compression": "",
        "shared_memory": "auto",
        "concurrency": limits.CLIENT_CONCURRENCY,
    }
    found.update(options)
    found["timeout"] = seconds_of(found["timeout"])
    for name in ("connections", "concurrency"):
        number = found[name]  # type: ignore[literal-required]
        if not isinstance(number, int) or not 1 <= number <= limits.CLIENT_CONNECTIONS_MAX:
            raise BadRequest(f"{name}={number!r} must be an integer from 1 to {limits.CLIENT_CONNECTIONS_MAX}")
    if found["compression"] not in CODINGS:
        raise BadRequest(f"compression={found['compression']!r} must be one of {', '.join(map(repr, CODINGS))}")
    if found["shared_memory"] not in (True, False, "auto"):
        raise BadRequest(f"shared_memory={found['shared_memory']!r} must be True, False or 'auto'")
    return found


def retries_of(options: ClientOptions) -> Retries:
    """The client's retries."""
    given = options["retries"]
    if isinstance(given, Retries):
        return given
    return Retries(count=given) if given else NO_RETRIES


def headers_of(options: ClientOptions) -> dict[str, str]:
    """The headers of each request."""
    headers = dict(options["headers"])
    if options["token"]:
        headers["Authorization"] = f"Bearer {options['token']}"
    return headers
