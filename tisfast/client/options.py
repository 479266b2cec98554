"""What a client and a call can be told.  Layer 3 (client)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import numpy as np

from tisfast import limits
from tisfast.client.address import Tls
from tisfast.client.calls import Parameters
from tisfast.client.retries import NO_RETRIES, Retries
from tisfast.errors import BadRequest
from tisfast.wire.client_head import RequestHead
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
    """Of a call's keywords, the inputs and the options: an input that is named as an option is an input.

    Raises BadRequest.
    """
    if not named:
        return named, NO_OPTIONS
    options = CallOptions()
    values = {}
    for name, value in named.items():
        if name in CALL_OPTIONS and (inputs is None or name not in inputs):
            options[name] = value  # type: ignore[literal-required]
        else:
            values[name] = value
    return values, checked_call(options)


def checked_call(options: CallOptions) -> CallOptions:
    """Options that can be sent.  Raises BadRequest for a name that is none, and for a value that cannot be one."""
    for name in options:
        if name not in CALL_OPTIONS:
            raise BadRequest(f"'{name}' is no option of a call, which are {', '.join(sorted(CALL_OPTIONS))}")
    call_timeout(options)
    for name, check in CALL_CHECKS.items():
        value: Any = options.get(name)
        if value is not None:
            check(name, value)
    return options


def call_timeout(options: CallOptions) -> float | None:
    """Seconds, None when the call says nothing.  Raises BadRequest."""
    return seconds_of(options["timeout"]) if options.get("timeout") is not None else None


def as_seconds(timeout: Any) -> float | None:
    """A time that can be waited for; scalars of numpy are numbers, too.  None: it is no such time."""
    number = isinstance(timeout, int | float | Real) and not isinstance(timeout, bool)
    return float(timeout) if number and 0 < timeout <= limits.CLIENT_SECONDS_MAX else None


def seconds_of(timeout: Any) -> float:
    """A timeout that can be waited for.  Raises BadRequest."""
    seconds = as_seconds(timeout)
    if seconds is None:
        raise BadRequest(
            f"timeout={timeout!r:.60} must be seconds, more than 0 and at most {limits.CLIENT_SECONDS_MAX}"
        )
    return seconds


def request_parameters(options: CallOptions) -> Parameters | None:
    """The parameters of a request."""
    parameters = {name: _plain(value) for name, value in (options.get("parameters") or {}).items()}
    if options.get("priority"):
        parameters["priority"] = int(options["priority"])
    return parameters or None


def wanted_outputs(options: CallOptions, known: tuple[TensorMetadata, ...], model: str) -> WantedOutputs | None:
    """What is asked for, None for all.  Raises BadRequest for an output that the model does not have."""
    names, classes = options.get("outputs"), options.get("classes")
    if names is None and classes is None:
        return None
    have = [each.name for each in known]
    names = have if names is None else [names] if isinstance(names, str) else list(names)
    counts = dict(classes) if isinstance(classes, Mapping) else dict.fromkeys(names, classes)
    for name in (*names, *counts):
        if name not in have:
            raise BadRequest(f"model '{model}' has no output '{name}', its outputs are {', '.join(have)}")
    return WantedOutputs([WantedOutput(name, classes=int(counts.get(name) or 0)) for name in names])


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
        _whole(name, found[name], 1, limits.CLIENT_CONNECTIONS_MAX)  # type: ignore[literal-required]
    if not isinstance(found["retries"], Retries):
        _whole("retries", found["retries"], 0, limits.CLIENT_RETRIES_MAX, "Retries or ")
    if not isinstance(found.get("tls") or Tls(), Tls):
        raise BadRequest(f"tls={found['tls']!r:.100} must be a Tls, as Tls(ca='ca.pem')")
    _headers("headers", found["headers"])
    if not isinstance(found["token"], str):  # a secret: no message shows its value
        raise BadRequest(f"token= must be a text, not {type(found['token']).__name__}")
    if found["compression"] not in CODINGS:
        raise BadRequest(f"compression={found['compression']!r:.60} must be one of {', '.join(map(repr, CODINGS))}")
    if not isinstance(found["shared_memory"], bool) and found["shared_memory"] != "auto":
        raise BadRequest(f"shared_memory={found['shared_memory']!r:.60} must be True, False or 'auto'")
    return found


def retries_of(options: ClientOptions) -> Retries:
    """The client's retries."""
    given = options["retries"]
    if isinstance(given, Retries):
        return given
    return Retries(count=given) if given else NO_RETRIES


def headers_of(options: ClientOptions) -> dict[str, str]:
    """The headers of each request.  Raises BadRequest."""
    headers = dict(options["headers"])
    if options["token"]:
        headers["Authorization"] = f"Bearer {options['token']}"
        _headers("token", {"Authorization": headers["Authorization"]})
    return headers


def version_of(model: str, version: str | int) -> str:
    """A version as it is sent.  What the server calls its versions is its own affair.  Raises BadRequest."""
    if isinstance(version, str):
        return version
    _whole(f"version of model '{model:.100}'", version, 1, LARGEST)
    return str(int(version))


def sequence_id_of(id: int | str) -> int | str:
    """An id of a sequence that servers take, 0 for none.  Raises BadRequest."""
    if not isinstance(id, str):
        _whole("id of a sequence", id, 0, LARGEST, "a text or ")
        return int(id)
    return id


def rows_of(size: int) -> int:
    """Rows of one request of `batches`, 0 for what the model takes.  Raises BadRequest."""
    _whole("size", size, 0, LARGEST)
    return int(size)


# ---- one value.  Each raises BadRequest with the option, the value, and what may be there.


def _whole(name: str, value: Any, least: int, most: int, other: str = "") -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not least <= value <= most:
        raise BadRequest(f"{name}={value!r:.60} must be {other}an integer from {least} to {most}")


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise BadRequest(f"{name}={value!r:.60} must be a text")


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise BadRequest(f"{name}={value!r:.60} must be True or False")


def _headers(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise BadRequest(f"{name}={value!r:.200} must be a mapping of names to values, all of them texts")
    for key, each in value.items():
        if not isinstance(key, str) or not isinstance(each, str):
            kind = type(each).__name__  # values may be secrets: no message shows them
            raise BadRequest(f"{name}= must be a mapping of texts to texts; {key!r:.60} has a value of {kind}")
        try:
            RequestHead("GET", "/", "localhost", [(key, each)])
        except BadRequest as error:
            if "is no HTTP header" in str(error):
                raise BadRequest(
                    f"{name}= cannot be sent: header {key!r:.60} has a name or value that is not one line of "
                    "printable text; a text read from a file may end in a line break: strip() it"
                ) from None
            error.reword(lambda text: f"{name}= cannot be sent: {text}")
            raise


def are_headers(value: Any) -> bool:
    """Headers that can be sent; else the keyword may be an input, or is refused once it is known to be none."""
    try:
        _headers("headers", value)
    except BadRequest:
        return False
    return True


def _parameters(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise BadRequest(f"{name}={value!r:.100} must be a mapping of names to values")
    for key, each in value.items():
        _text("name of a request parameter", key)
        plain = _plain(each)
        if type(plain) not in (bool, int, float, str) or (type(plain) is int and not -(1 << 63) <= plain <= LARGEST):
            raise BadRequest(
                f"request parameter '{key:.100}' is {each!r:.60}; "
                "it must be a bool, a str, a float, or an int of 64 bits"
            )


def _plain(value: Any) -> Any:
    """A scalar of numpy as a number."""
    return value.item() if isinstance(value, np.generic) else value


def _priority(name: str, value: Any) -> None:
    _whole(name, value, 0, LARGEST)


def _classes(name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for output, count in value.items():
            _whole(f"{name} of output '{output!s:.100}'", count, 0, limits.CLIENT_CLASSES_MAX)
    else:
        _whole(name, value, 0, limits.CLIENT_CLASSES_MAX, "a mapping of outputs, or ")


def _outputs(name: str, value: Any) -> None:
    if isinstance(value, str):
        return
    if not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        raise BadRequest(f"{name}={value!r:.100} must be names of outputs; all come where none are named")


LARGEST: Final = (1 << 64) - 1
CALL_CHECKS: Final[dict[str, Callable[[str, Any], None]]] = {
    "parameters": _parameters,
    "id": _text,
    "outputs": _outputs,
    "classes": _classes,
    "priority": _priority,
    "headers": _headers,
    "retry": _flag,
}
"""Of each option but `timeout`; None is as if nothing was said."""
