"""Calls of every RPC, good and bad, and those of each extension."""

# ruff: noqa: E501  (a table: one case, one line)
from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tisfast.descriptors import message_class

SERVICE: Final = "inference.GRPCInferenceService"
F4: Final = struct.pack("<4f", 1, 2, 3, 4)
I4: Final = struct.pack("<4i", 1, 2, 3, 4)
KINDS: Final = {
    "bool_param": True,
    "int64_param": 3,
    "string_param": "s",
    "double_param": 1.5,
    "uint64_param": 7,
    "": None,
}


class Call(NamedTuple):
    """One call: messages as bytes; answer: full name of the response's type; stream: bidirectional."""

    name: str
    rows: str
    path: str
    messages: tuple[bytes, ...]
    answer: str
    stream: bool = False
    metadata: tuple[tuple[str, str], ...] = ()


def rpc(name: str, rows: str, method: str, /, **fields: Any) -> Call:
    """A unary call of the inference service."""
    return sent(name, rows, method, message_class(f"inference.{method}Request")(**fields).SerializeToString())


def sent(name: str, rows: str, method: str, data: bytes) -> Call:
    """The same with bytes as they are."""
    return Call(name, rows, f"/{SERVICE}/{method}", (data,), f"inference.{method}Response")


def tensor(name: str, shape: tuple[int, ...] = (4,), datatype: str = "FP32", **fields: Any) -> dict[str, Any]:
    """An input."""
    return {"name": name, "shape": list(shape), "datatype": datatype, **fields}


PAIR: Final = [tensor("INPUT0"), tensor("INPUT1")]


def request(model: str = "add_sub", **fields: Any) -> bytes:
    """A ModelInferRequest: two raw inputs unless told otherwise."""
    fields = {"inputs": PAIR, "raw_input_contents": [F4] * 2, **fields}
    data: bytes = message_class("inference.ModelInferRequest")(model_name=model, **fields).SerializeToString()
    return data


def infer(name: str, rows: str = "13.06", **fields: Any) -> Call:
    """A call of ModelInfer."""
    return Call(name, rows, f"/{SERVICE}/ModelInfer", (request(**fields),), "inference.ModelInferResponse")


def stream(name: str, *messages: bytes, rows: str = "13.13 13.14 13.15", **metadata: str) -> Call:
    """A call of ModelStreamInfer."""
    answer = "inference.ModelStreamInferResponse"
    return Call(name, rows, f"/{SERVICE}/ModelStreamInfer", messages, answer, True, tuple(metadata.items()))


def changed(place: int, **fields: Any) -> list[dict[str, Any]]:
    """The two inputs with one of them changed."""
    return [{**each, **(fields if i == place else {})} for i, each in enumerate(PAIR)]


def typed(**contents: Any) -> dict[str, Any]:
    """Fields of a request of identity_fp32 with typed contents."""
    return {"model": "identity_fp32", "inputs": [tensor("INPUT0", contents=contents)], "raw_input_contents": []}


def _health() -> Iterator[Call]:
    for version in ("", "1", "01", "one", "1x", "0", "-1", "99", "99999999999999999999"):
        for method in ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"):
            yield rpc(
                f"{method} of version {version or 'any'}",
                "13.25 1.08 1.10 11.08",
                method,
                name="add_sub",
                version=version,
            )
    for method in ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"):
        yield rpc(f"{method} of nobody", "13.25 1.08", method, name="nobody")
        yield rpc(f"{method} of an unloaded version", "13.25 1.08", method, name="latest", version="1")
        yield sent(f"{method} of no message", "13.04", method, b"\xff\xff")
    for model in ("identity_fp32", "batched", "types", "reshaped", "versions", "completed", "misbehave"):
        yield rpc(f"config of {model}", "1.11", "ModelConfig", name=model)
        yield rpc(f"metadata of {model}", "1.10", "ModelMetadata", name=model)
    for method in ("ServerLive", "ServerReady", "ServerMetadata"):
        yield rpc(method, "13.01 1.09", method)
    for name, data in (("", b""), (" of x", b"\x0a\x01x"), (" of no message", b"\xff")):
        answer = "grpc.health.v1.HealthCheckResponse"
        yield Call(f"health check{name}", "13.02", "/grpc.health.v1.Health/Check", (data,), answer)
    yield Call("unknown method", "13.01", f"/{SERVICE}/Nothing", (b"",), "inference.ServerLiveResponse")
    yield Call("unknown service", "13.01", "/foo.Bar/ServerLive", (b"",), "inference.ServerLiveResponse")


def _repository() -> Iterator[Call]:
    yield rpc("index", "6.01", "RepositoryIndex")
    yield rpc("index of ready ones", "6.01", "RepositoryIndex", ready=True)
    for method in ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"):
        yield rpc(f"{method} of a repository", "6.02 6.13", method, repository_name="x")
    for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
        yield rpc(method, "6.03 6.09", method, model_name="add_sub")
    load = "RepositoryModelLoad"
    yield rpc("load, config as number", "6.14", load, model_name="add_sub", parameters={"config": {"int64_param": 3}})
    yield rpc("load, file as text", "6.14", load, model_name="add_sub", parameters={"file:1/x": {"string_param": "3"}})
    yield rpc("load, unknown parameter", "6.08", load, model_name="add_sub", parameters={"x": {"string_param": "3"}})
    unload = "RepositoryModelUnload"
    yield rpc(
        "unload, wrong kind",
        "6.14",
        unload,
        model_name="add_sub",
        parameters={"unload_dependents": {"string_param": "3"}},
    )


def _shared_memory() -> Iterator[Call]:
    for family in ("System", "Cuda"):
        yield rpc(f"{family} status", "10.10", f"{family}SharedMemoryStatus")
        yield rpc(f"{family} status of nobody", "10.05", f"{family}SharedMemoryStatus", name="a")
    where = {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": 16}}
    for place in ("input", "output"):
        for what, parameters in (
            ("unknown region", where),
            ("region and classes", {**where, "classification": {"int64_param": 1}}),
            ("region without size", {"shared_memory_region": {"string_param": "r"}}),
            ("region as number", {"shared_memory_region": {"int64_param": 1}}),
            ("size as text", {**where, "shared_memory_byte_size": {"string_param": "16"}}),
            ("offset as text", {**where, "shared_memory_offset": {"string_param": "16"}}),
            ("offset alone", {"shared_memory_offset": {"int64_param": 16}}),
            ("size alone", {"shared_memory_byte_size": {"int64_param": 16}}),
        ):
            inputs = changed(0, parameters=parameters) if place == "input" else PAIR
            outputs = [{"name": "OUTPUT0", "parameters": parameters}] if place == "output" else []
            raw = [F4] if place == "input" and "alone" not in what else [F4] * 2
            yield infer(f"{place}: {what}", "10.08 10.09", inputs=inputs, outputs=outputs, raw_input_contents=raw)
    yield infer(
        "region and contents",
        "10.09",
        inputs=changed(0, parameters=where, contents={"fp32_contents": [1]}),
        raw_input_contents=[],
    )


def _settings() -> Iterator[Call]:
    yield rpc("trace settings of nobody", "12.04", "TraceSetting", model_name="nobody")
    for what, settings in (
        ("two rates", {"trace_rate": ["1", "2"]}), ("a file", {"trace_file": ["f"]}), ("rate as text", {"trace_rate": ["x"]}),
        ("two levels", {"trace_level": ["OFF", "TIMESTAMPS"]}),
    ):  # fmt: skip
        yield rpc(
            f"trace: {what}", "12.02 12.03", "TraceSetting", settings={k: {"value": v} for k, v in settings.items()}
        )
    yield rpc("log settings", "5.01 5.05", "LogSettings")
    for name in ("log_info", "log_verbose_level", "log_format", "log_file"):
        for kind, value in (("bool_param", True), ("uint32_param", 0), ("string_param", "x")):
            if (name, kind) != ("log_verbose_level", "uint32_param"):
                yield rpc(f"{name} as {kind}", "5.03 5.04 5.05", "LogSettings", settings={name: {kind: value}})


def _inferences() -> Iterator[Call]:
    yield infer("good", "13.08", id="x")
    yield infer("good version", "13.08", model_version="1")
    for version in ("one", "-1", "9"):
        yield infer(f"version {version}", "1.12 1.08", model_version=version)
    yield infer("nobody", "1.08", model="nobody")
    yield infer("one raw missing", raw_input_contents=[F4])
    yield infer("raw surplus", raw_input_contents=[F4] * 3)
    yield infer("no data", raw_input_contents=[])
    yield infer("contents and raw", inputs=changed(0, contents={"fp32_contents": [1]}))
    yield infer("empty contents and raw", inputs=changed(0, contents={}))
    yield infer("raw short", raw_input_contents=[F4[:8], F4])
    yield infer("raw long", raw_input_contents=[F4, F4 * 2])
    yield infer("raw empty", raw_input_contents=[b"", F4])
    yield infer("unknown datatype", "13.07", inputs=changed(0, datatype="FP33"))
    yield infer("no datatype", "13.07", inputs=changed(0, datatype=""))
    yield infer("other datatype", "13.07", inputs=changed(1, datatype="INT32"))
    yield infer("unknown input", "15.55", inputs=changed(0, name="X"))
    yield infer("input twice", "15.55", inputs=changed(1, name="INPUT0"))
    yield infer("negative shape", "1.16", inputs=changed(0, shape=[-4]))
    yield infer("shape of 5", "15.55", inputs=changed(0, shape=[5]))
    yield infer("no shape", "15.55", inputs=changed(0, shape=[]))
    yield infer("rank 41", "15.55", inputs=changed(0, shape=[4] + [1] * 40))
    yield infer("one input", "15.55", inputs=PAIR[:1], raw_input_contents=[F4])
    yield infer("no inputs", "15.55", inputs=[], raw_input_contents=[])
    yield infer(
        "no elements", "13.08", model="identity_fp32", inputs=[tensor("INPUT0", (0,))], raw_input_contents=[b""]
    )
    for what, outputs in (
        ("one", ["OUTPUT1"]),
        ("both", ["OUTPUT1", "OUTPUT0"]),
        ("twice", ["OUTPUT1"] * 2),
        ("unknown", ["Z"]),
        ("nameless", [""]),
    ):
        yield infer(f"outputs: {what}", "13.28 13.08", outputs=[{"name": name} for name in outputs])
    yield infer("no message", "13.04")._replace(messages=(b"\xff\xff",))
    yield infer("cut off", "13.04")._replace(messages=(request()[:-3],))
    yield infer("unknown fields", "13.26")._replace(messages=(request() + b"\xa0\x06\x01\xa3\x06\xa4\x06",))
    yield infer("name that is not UTF-8", "13.04")._replace(messages=(b"\x0a\x02\xff\xfe" + request(),))
    yield infer("id that is not UTF-8", "13.04")._replace(messages=(request() + b"\x1a\x02\xff\xfe",))
    yield infer("empty message", "1.08")._replace(messages=(b"",))
    yield infer(
        "batched",
        "13.08",
        model="batched",
        inputs=[tensor("INPUT0", (1, 4), "INT32"), tensor("INPUT1", (1, 4), "INT32")],
        raw_input_contents=[I4, I4],
    )
    yield infer(
        "batch without dimension",
        "15.55",
        model="batched",
        inputs=[tensor("INPUT0", (4,), "INT32"), tensor("INPUT1", (4,), "INT32")],
        raw_input_contents=[I4, I4],
    )
    yield infer(
        "model fails",
        "16.13",
        model="misbehave",
        inputs=[tensor("INPUT0", (1,))],
        raw_input_contents=[F4[:4]],
        parameters={"mode": {"string_param": "error_not_found"}},
    )


def _contents() -> Iterator[Call]:
    good: dict[str, tuple[str, list[Any]]] = {
        "BOOL": ("bool_contents", [True, False]), "INT8": ("int_contents", [-1, 2]), "INT16": ("int_contents", [-1, 2]), "INT32": ("int_contents", [-1, 2]),
        "INT64": ("int64_contents", [-1, 2**40]), "UINT8": ("uint_contents", [1, 255]), "UINT16": ("uint_contents", [1, 65535]),
        "UINT32": ("uint_contents", [1, 2**32 - 1]), "UINT64": ("uint64_contents", [1, 2**64 - 1]), "FP32": ("fp32_contents", [1, 2.5]),
        "FP64": ("fp64_contents", [1, 2.5]), "BYTES": ("bytes_contents", [b"a", b"\xff\0"]),
    }  # fmt: skip
    for datatype, (field, values) in good.items():
        name = f"IN_{'STRING' if datatype == 'BYTES' else datatype}"
        inputs = [tensor(name, (2,), datatype, contents={field: values})]
        yield infer(
            f"typed {datatype}",
            "13.07",
            model="types",
            inputs=inputs,
            outputs=[{"name": name.replace("IN_", "OUT_")}],
            raw_input_contents=[],
        )
    yield infer(
        "typed FP16",
        "13.07",
        model="types",
        inputs=[tensor("IN_FP16", (1,), "FP16", contents={"fp32_contents": [1]})],
        raw_input_contents=[],
    )
    yield infer("typed, too few", "13.07", **typed(fp32_contents=[1, 2, 3]))
    yield infer("typed, none", "13.07", **typed())
    yield infer("typed, wrong field", "13.07", **typed(fp64_contents=[1, 2, 3, 4]))
    yield infer("typed, wrong integer field", "13.07", **typed(int_contents=[1, 2, 3, 4]))
    yield infer("typed, two fields", "13.07", **typed(fp32_contents=[1, 2, 3, 4], fp64_contents=[1]))
    yield infer("typed, two fields, wrong first", "13.07", **typed(fp32_contents=[1, 2, 3, 4], bool_contents=[True]))
    yield infer(
        "typed, other input without",
        "13.07",
        inputs=changed(0, contents={"fp32_contents": [1, 2, 3, 4]}),
        raw_input_contents=[],
    )
    words = [tensor("IN_STRING", (2,), "BYTES", contents={"bytes_contents": [b"a", b"b", b"c"]})]
    yield infer("typed, too many strings", "13.07", model="types", inputs=words, raw_input_contents=[])


def _parameters() -> Iterator[Call]:
    names = (
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "triton_enable_empty_final_response",
        "triton_x",
        "x",
    )
    for name in names:
        for kind, value in KINDS.items():
            parameter = {kind: value} if kind else {}
            if (name, kind) != ("timeout", "int64_param"):
                yield infer(f"parameter {name} as {kind or 'nothing'}", "13.05 13.10", parameters={name: parameter})
    yield infer("priority of -1", "13.10", parameters={"priority": {"int64_param": -1}})
    yield infer("timeout of -1", "13.10", parameters={"timeout": {"int64_param": -1}})
    yield infer("sequence of -1", "13.10", parameters={"sequence_id": {"int64_param": -1}})
    for kind, value in KINDS.items():
        parameter = {kind: value} if kind else {}
        yield infer(
            f"classification as {kind or 'nothing'}",
            "13.09 3.01",
            outputs=[{"name": "OUTPUT0", "parameters": {"classification": parameter}}],
        )
        yield infer(
            f"output parameter x as {kind or 'nothing'}",
            "13.09",
            outputs=[{"name": "OUTPUT0", "parameters": {"x": parameter}}],
        )
    for classes in (0, -1, 1, 100):
        yield infer(
            f"{classes} classes",
            "13.09 3.01",
            outputs=[{"name": "OUTPUT0", "parameters": {"classification": {"int64_param": classes}}}],
        )


def _streams() -> Iterator[Call]:
    yield stream("stream: one", request(id="a"))
    yield stream("stream: nothing")
    yield stream("stream: three", *(request(id=str(i)) for i in range(3)))
    yield stream("stream: nobody, then good", request("nobody", id="q"), request(id="b"))
    yield stream("stream: bad version", request(id="q", model_version="x"))
    yield stream("stream: one input", request(inputs=PAIR[:1], raw_input_contents=[F4], id="c"), request(id="d"))
    yield stream("stream: bad parameter", request(id="e", parameters={"triton_x": {"bool_param": True}}))
    yield stream(
        "stream: empty final of a model that answers once",
        request(id="e", parameters={"triton_enable_empty_final_response": {"bool_param": True}}),
    )
    failing = request(
        "misbehave",
        inputs=[tensor("INPUT0", (1,))],
        raw_input_contents=[F4[:4]],
        parameters={"mode": {"string_param": "error_not_found"}},
        id="f",
    )
    yield stream("stream: model fails, then good", failing, request(id="g"))
    yield stream("stream: model fails with triton_grpc_error", failing, triton_grpc_error="true")
    yield stream(
        "stream: nobody, then good, with triton_grpc_error",
        request("nobody", id="q"),
        request(id="b"),
        triton_grpc_error="true",
    )
    yield stream(
        "stream: bad parameter with triton_grpc_error",
        request(id="e", parameters={"triton_x": {"bool_param": True}}),
        request(id="b"),
        triton_grpc_error="true",
    )


def planned(plan: str, **fields: Any) -> bytes:
    """A request of the decoupled model: its PLAN says which responses it sends."""
    text = plan.encode()
    plans = [tensor("PLAN", (1,), "BYTES")]
    return request("responses", inputs=plans, raw_input_contents=[struct.pack("<i", len(text)) + text], **fields)


def _decoupled() -> Iterator[Call]:
    final = {"triton_enable_empty_final_response": {"bool_param": True}}
    for plan in ("1", "12", "123", "", "e", "1e", "1e2", "e1", "n", "F", "1F"):
        yield stream(f"decoupled: {plan or 'none'}", planned(plan, id="d"), rows="13.13 13.14 13.15")
        yield stream(f"decoupled: {plan or 'none'}, and the end", planned(plan, id="d", parameters=final), rows="13.14")
    yield stream(
        "decoupled: an error with triton_grpc_error", planned("1e2", id="d"), rows="13.15", triton_grpc_error="true"
    )
    yield stream("decoupled: no output of that name", planned("1", id="d", outputs=[{"name": "Z"}]), rows="13.15")
    yield infer("decoupled: ModelInfer", "13.12")._replace(messages=(planned("1"),))


def _classes() -> Iterator[Call]:
    values = struct.pack("<6f", 0.5, 3, -1, 7, 7, float("-inf"))
    for model, label in (("labelled", "labelled"), ("identity_fp32", "no labels")):
        shape = (2, 3) if model == "labelled" else (6,)
        for count in (1, 2, 3, 7):
            wanted = [{"name": "OUTPUT0", "parameters": {"classification": {"int64_param": count}}}]
            yield infer(
                f"{count} classes, {label}",
                "3.01 3.02 3.03",
                model=model,
                inputs=[tensor("INPUT0", shape)],
                raw_input_contents=[values],
                outputs=wanted,
            )
    words = [tensor("IN_STRING", (1,), "BYTES")]
    for name, datatype, raw in (
        ("STRING", "BYTES", b"\x01\0\0\0a"),
        ("BOOL", "BOOL", b"\x01"),
        ("FP16", "FP16", b"\0\x3c"),
        ("UINT8", "UINT8", b"\xff"),
        ("INT64", "INT64", b"\xff" * 8),
        ("FP64", "FP64", struct.pack("<d", 0.1)),
    ):
        inputs = [{**words[0], "name": f"IN_{name}", "datatype": datatype}]
        wanted = [{"name": f"OUT_{name}", "parameters": {"classification": {"int64_param": 1}}}]
        yield infer(
            f"classes of {datatype}", "3.04", model="types", inputs=inputs, raw_input_contents=[raw], outputs=wanted
        )


CALLS: Final[list[Call]] = [
    *_health(), *_repository(), *_shared_memory(), *_settings(), *_inferences(), *_contents(), *_parameters(), *_streams(),
    *_decoupled(), *_classes(),
]  # fmt: skip
assert len({call.name for call in CALLS}) == len(CALLS), "two calls of one name"
