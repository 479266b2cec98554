"""When two answers are alike: headers that matter, JSON as values, and the few rules that hold for every case.

The rules (each is a deliberate, general difference or freedom of JSON, and hides nothing else):

1. Content-Type of an error is application/json in newer Triton and here; 2.51 says text/plain for some.
   An answer without a body has none here, where 2.51 says text/plain.
2. A message may go on where Triton's ends: the beginning is what clients match on, the rest says what to do.
3. What the JSON parser has to say of broken JSON is its own; the text before it is Triton's.
4. FP32 numbers are alike when they are the same FP32 number: 0.1 and 0.10000000149011612.
5. The server's version is its own, and of Triton's extensions it names those that it serves: in the same order, none
   that Triton does not have.
6. Inference-Header-Content-Length is compared by what it does: cutting the body into its parts.
7. A body comes with its length or in chunks, as the server likes.
8. The folder that the project lies in is left out of tracebacks.
9. Of statistics only the structure is compared: the servers count for themselves.
10. The repository index has no order.
11. A server that is live or ready says so in the JSON of the Open Inference protocol, where Triton's body is empty.
12. Of a page for people only that it is one is compared.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any, Final

from tests.oracle.exchange import Answer

ROOT: Final = str(Path(__file__).resolve().parents[2])
HEADERS: Final = ("content-type", "content-encoding", "accept-encoding", "connection")
HEALTHY: Final = (b'{"live":true}', b'{"ready":true}')
TRITON_EXTENSIONS: Final = (
    *("classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy"),
    *("model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters"),
    *("statistics", "trace", "logging"),
)
PARSER_SAYS: Final = re.compile(r"(failed to parse the request JSON buffer: ).*", re.DOTALL)

Difference = dict[str, tuple[Any, Any]]
"""Where two answers differ: path to (Triton's, tisfast's)."""


def differences(theirs: list[Answer], ours: list[Answer]) -> Difference:
    """Between two conversations; the path of a later answer starts with its number."""
    found: Difference = {}
    for number, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        prefix = f"{number}: " if len(theirs) > 1 else ""
        found.update({prefix + path: pair for path, pair in _between(normal(a), normal(b)).items()})
    return found


def normal(answer: Answer) -> dict[str, Any]:
    """An answer as plain values, volatile parts removed."""
    if answer.status == 0:
        return {"ended": answer.body.decode()}
    text, tail = _parts(answer)
    value = "" if text in HEALTHY else _json(text)  # rule 11
    if text.startswith(b"<!doctype html>"):
        value = "a page"  # rule 12
    facts: dict[str, Any] = {"status": answer.status, "body": _value(value)}
    if tail is not None:
        facts["tail"] = tail.hex()
    facts.update({name: answer.headers[name] for name in HEADERS if name in answer.headers})
    if not answer.body or text in HEALTHY or (isinstance(value, dict) and set(value) == {"error"}):
        facts.pop("content-type", None)  # rules 1 and 11
    return facts


def _parts(answer: Answer) -> tuple[bytes, bytes | None]:
    """JSON text and binary tail (None when the answer has no such header)."""
    length = answer.headers.get("inference-header-content-length")
    if length is None or "content-encoding" in answer.headers:
        return _inflated(answer), None
    return answer.body[: int(length)], answer.body[int(length) :]


def _inflated(answer: Answer) -> bytes:
    encoding = answer.headers.get("content-encoding")
    if encoding is None or encoding == "identity":
        return answer.body
    return zlib.decompress(answer.body, wbits=47)  # gzip or zlib, by the header


def _json(text: bytes) -> Any:
    """The JSON value, those of a stream of events, or the text itself when it is none."""
    decoded = text.decode(errors="surrogateescape")
    if decoded.startswith("data: ") and decoded.endswith("\n\n"):
        return [json.loads(event.removeprefix("data: ")) for event in decoded.split("\n\n")[:-1]]
    try:
        return json.loads(decoded)
    except ValueError:
        return decoded


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return sorted(map(_entry, value)) if _is_index(value) else [_value(each) for each in value]
    return _object(value) if isinstance(value, dict) else value


def _object(value: dict[str, Any]) -> dict[str, Any]:
    if isinstance(value.get("error"), str):
        return {**value, "error": _text(value["error"])}
    if "extensions" in value:
        served = [name for name in TRITON_EXTENSIONS if name in value["extensions"]]
        return {**value, "version": "...", "extensions": served == value["extensions"]}  # rule 5
    if isinstance(value.get("model_stats"), list):
        return {"model_stats": sorted(map(_counted, value["model_stats"]))}  # rule 9
    if isinstance(value.get("outputs"), list) and "model_name" in value:
        return {**value, "outputs": [_output(each) for each in value["outputs"]]}
    return {name: "NaN" if repr(item) == "nan" else item for name, item in value.items()}  # NaN is not equal to NaN


def _counted(model: dict[str, Any]) -> list[Any]:
    return [model["name"], model["version"], sorted(model), sorted(model["inference_stats"])]


def _is_index(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(each, dict) and {"name", "state"} <= set(each) for each in value)


def _entry(model: dict[str, Any]) -> list[tuple[str, Any]]:
    """Rule 10."""
    return sorted(model.items())


def _text(error: str) -> str:
    """Rules 3 and 8."""
    return PARSER_SAYS.sub(r"\1...", error).replace(f"{ROOT}/", "")


def brief(answers: list[Answer]) -> str:
    """A conversation in one line: status with the error, or with the outputs, or how it ended."""
    return " | ".join(_brief(normal(answer)) for answer in answers)


def _brief(facts: dict[str, Any]) -> str:
    if "ended" in facts:
        return str(facts["ended"])
    body = facts["body"]
    closing = ", connection: close" if facts.get("connection") == "close" else ""
    text = _brief_body(body) if isinstance(body, dict) else body
    return f"{facts['status']}{closing} {text}{facts.get('tail', '')}".rstrip()


def _brief_body(body: dict[str, Any]) -> str:
    if "error" in body:
        return str(body["error"])
    if "outputs" in body and "model_name" in body:
        return " ".join(f"{each['name']}={each.get('data', 'binary')}" for each in body["outputs"])
    return str(body.get("name", body))


def _output(output: dict[str, Any]) -> dict[str, Any]:
    if output.get("datatype") != "FP32" or "data" not in output:
        return output
    return {**output, "data": [_fp32(number) for number in output["data"]]}


def _fp32(number: float) -> str:
    """Rule 4; as text, since NaN is not equal to itself."""
    return repr(struct.unpack("<f", struct.pack("<f", number))[0])


def _between(theirs: Any, ours: Any, path: str = "") -> Difference:
    """Paths at which two values differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found: Difference = {}
        for name in [*theirs, *(n for n in ours if n not in theirs)]:
            found.update(_between(theirs.get(name), ours.get(name), f"{path}.{name}" if path else name))
        return found
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return {
            k: v
            for i, pair in enumerate(zip(theirs, ours, strict=True))
            for k, v in _between(*pair, f"{path}[{i}]").items()
        }
    return {} if _same(theirs, ours, path) else {path: (theirs, ours)}


def _same(theirs: Any, ours: Any, path: str) -> bool:
    if path == "body.error" and isinstance(theirs, str) and isinstance(ours, str):
        return ours.startswith(theirs.rstrip())  # rule 2
    return type(theirs) is type(ours) and theirs == ours
