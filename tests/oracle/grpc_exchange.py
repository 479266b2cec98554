"""Make a gRPC call with grpcio, and compare what came back.

The rules (each is a deliberate, general difference, and hides nothing else):

1. Details may go on where Triton's end: the beginning is what clients match on, the rest says what to do.
2. The server's version is its own, and of Triton's extensions it names those that it serves.
3. Of statistics only the structure is compared: the servers count for themselves.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.json_format import MessageToDict

from tests.oracle.cases.grpc_calls import Call
from tisfast.descriptors import message_class

SECONDS_MAX: Final = 15
FREE: Final = ("version", "extensions")


class Answer(NamedTuple):
    """Status code, details, and the messages as plain values."""

    code: str
    details: str
    messages: tuple[Any, ...]


def ask(port: int, call: Call) -> Answer:
    """One call on a channel of its own."""
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        read = message_class(call.answer).FromString
        messages: list[Any] = []
        code, details = "OK", ""
        try:
            if call.stream:
                method = channel.stream_stream(call.path, bytes, read)
                messages.extend(method(iter(call.messages), timeout=SECONDS_MAX, metadata=call.metadata))
            else:
                unary = channel.unary_unary(call.path, bytes, read)
                messages.append(unary(call.messages[0], timeout=SECONDS_MAX, metadata=call.metadata))
        except grpc.RpcError as error:
            code, details = error.code().name, error.details() or ""
        return Answer(code, details, tuple(_value(call, message) for message in messages))


def _value(call: Call, message: Any) -> Any:
    value = MessageToDict(message, preserving_proto_field_name=True)
    if call.path.endswith("/ServerMetadata"):
        return {name: each for name, each in value.items() if name not in FREE}
    if call.path.endswith("/ModelStatistics"):
        return [
            (each["name"], each["version"], sorted(each.get("inference_stats", {}))) for each in value["model_stats"]
        ]
    if "regions" in value or "models" in value:
        return {name: sorted(each, key=str) for name, each in value.items()}
    return value


def alike(theirs: Answer, ours: Answer) -> bool:
    """Whether ours does for a client what theirs does."""
    if theirs.code != ours.code or not ours.details.startswith(theirs.details.rstrip()):
        return False
    if len(theirs.messages) != len(ours.messages):
        return False
    return all(_same(*pair) for pair in zip(theirs.messages, ours.messages, strict=True))


def _same(theirs: Any, ours: Any) -> bool:
    if not isinstance(theirs, dict) or "error_message" not in theirs:
        return bool(theirs == ours)
    text = ours.get("error_message", "")
    return text.startswith(theirs["error_message"].rstrip()) and {**theirs, "error_message": text} == ours


def brief(answer: Answer) -> str:
    """In one line."""
    parts = [answer.code, answer.details, *(str(_short(message)) for message in answer.messages)]
    return " ".join(part for part in parts if part)


def _short(message: Any) -> Any:
    return message if not isinstance(message, dict) else {k: v for k, v in message.items() if k != "config"}
