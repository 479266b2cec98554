"""System shared memory, and what both families say without a GPU.

The file behind KEY is made before the servers start; each conversation leaves nothing registered.
"""

# ruff: noqa: E501  (a table: one case, one line)
from __future__ import annotations

import json
import os
from typing import Final

from tests.oracle.cases.table import Case, Request, post, tensor

KEY: Final = f"/tisfast_oracle_region_{os.getpid()}"  # two runs on one machine do not write into each other
NBYTES: Final = 8192
SYSTEM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
_CLEAN = Request("POST", f"{SYSTEM}/unregister")
_STATUS = Request("GET", f"{SYSTEM}/status")


def _register(name: str, payload: object, base: str = SYSTEM) -> Request:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Request("POST", f"{base}/region/{name}/register", (), body)


def _talk(name: str, rows: str, *requests: Request) -> Case:
    return Case(f"regions: {name}", rows, (*requests, _CLEAN))


_GOOD = _register("r", {"key": KEY, "byte_size": NBYTES})


def _infer(given: dict[str, object], wanted: dict[str, object] | None = None) -> Request:
    payload: dict[str, object] = {"inputs": [tensor("INPUT0", "FP32", [4], None, **given)]}
    if wanted is not None:
        payload["outputs"] = [{"name": "OUTPUT0", "parameters": wanted}]
    return post("identity_fp32", payload)


def _in(name: str = "r", nbytes: object = 16, **more: object) -> dict[str, object]:
    offset = {"shared_memory_offset": more.pop("offset")} if "offset" in more else {}
    return {"shared_memory_region": name, "shared_memory_byte_size": nbytes, **offset, **more}


_BAD_FIELDS: Final[list[object]] = [
    {}, [], 7, {"key": 5}, {"key": KEY}, {"key": KEY, "byte_size": "x"}, {"key": KEY, "byte_size": -1},
    {"key": KEY, "byte_size": 1.5}, {"key": KEY, "byte_size": True}, {"key": KEY, "byte_size": 4, "offset": -1}, {"key": KEY, "byte_size": 4, "offset": "x"},
    {"key": "/nobody_has_this", "byte_size": 4}, {"key": "..", "byte_size": 4}, {"key": "/.", "byte_size": 4}, {"key": "/a/b", "byte_size": 4},
    {"key": "/../etc/passwd", "byte_size": 4}, {"key": "x" * 256, "byte_size": 4}, {"key": KEY, "byte_size": NBYTES + 1},
    {"key": KEY, "byte_size": 5, "offset": NBYTES - 4}, {"key": KEY, "byte_size": 2**63},
]  # fmt: skip

CASES: list[Case] = [
    _talk("none", "10.05", _STATUS, Request("GET", f"{SYSTEM}/region/x/status"), Request("GET", f"{CUDA}/status"), Request("GET", f"{CUDA}/region/x/status")),
    _talk("methods", "10.05", Request("POST", f"{SYSTEM}/status"), Request("GET", f"{SYSTEM}/region/r/register"), Request("GET", f"{CUDA}/unregister")),
    _talk("a life", "10.02 10.05 10.06", _GOOD, _STATUS, Request("GET", f"{SYSTEM}/region/r/status"), Request("POST", f"{SYSTEM}/region/r/unregister"), _STATUS),
    _talk("twice", "10.04", _GOOD, _GOOD),
    _talk("part of a file", "10.02", _register("r", {"key": KEY[1:], "byte_size": 16, "offset": 4096}), _STATUS, _infer(_in()), _infer(_in(nbytes=20))),
    _talk("the other family", "10.05 10.06", _GOOD, Request("GET", f"{CUDA}/region/r/status"), Request("POST", f"{CUDA}/region/r/unregister"), Request("POST", f"{CUDA}/unregister"), _STATUS),
    _talk("unknown ones are unregistered", "10.06", Request("POST", f"{SYSTEM}/region/x/unregister"), Request("POST", f"{CUDA}/region/x/unregister")),
    _talk("no name", "10.02 10.07", Request("POST", f"{SYSTEM}/register", (), b"{}"), Request("POST", f"{CUDA}/register", (), b"{}")),
    *(_talk(f"bad fields {i}", "10.02", _register("r", each)) for i, each in enumerate(_BAD_FIELDS)),
    _talk("broken JSON", "10.02", _register("r", b"nonsense"), _register("r", b"")),
    _talk("slashes only", "10.03", _register("r", {"key": "//", "byte_size": 4})),
    _talk("the reserved prefix", "10.03", _register("r", {"key": "/triton_python_backend_shm_region_x", "byte_size": 4})),
    _talk("no bytes", "10.02", _register("r", {"key": KEY, "byte_size": 0})),
    _talk("an odd offset", "10.02", _register("r", {"key": KEY, "byte_size": 16, "offset": 64})),
    _talk("an offset that overflows", "10.02", _register("r", {"key": KEY, "byte_size": 64, "offset": 2**64 - 32})),
    _talk("CUDA without handle", "10.07", _register("c", {}, CUDA), _register("c", {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 4}, CUDA)),
    _talk("CUDA without GPU", "10.07", _register("c", {"raw_handle": {"b64": "A" * 86 + "=="}, "device_id": 0, "byte_size": 4}, CUDA)),
    _talk("CUDA on a GPU below zero", "10.07", _register("c", {"raw_handle": {"b64": "A" * 86 + "=="}, "device_id": -1, "byte_size": 4}, CUDA)),
    *(_talk(f"CUDA on GPU {each!r}", "10.07", _register("c", {"raw_handle": {"b64": "A" * 86 + "=="}, "device_id": each, "byte_size": 4}, CUDA)) for each in (1.5, "0", True, 2**64)),
    _talk("an empty name", "10.02 10.07", *(_register("", {}, base) for base in (SYSTEM, CUDA)), Request("POST", f"{SYSTEM}/region//unregister"), Request("POST", f"{CUDA}/region//unregister")),
    _talk("input", "10.08", _GOOD, _infer(_in()), _infer(_in(offset=400)), _infer(_in(offset=NBYTES - 16))),
    _talk("output", "10.08", _GOOD, _infer(_in(offset=64), _in(nbytes=64, offset=4096)), _infer(_in(offset=4096)), _infer(_in(), _in(offset=5000, binary_data=False))),
    _talk("output too small", "10.08", _GOOD, _infer(_in(), _in(nbytes=12, offset=4096))),
    *(_talk(f"bad input {i}", "10.08 10.09", _GOOD, _infer(each)) for i, each in enumerate([
        _in("x"), _in(offset=NBYTES), _in(offset=NBYTES - 8), _in(nbytes=8), _in(nbytes="x"), _in(nbytes=-1), _in(offset=-1), _in(7), _in(binary_data_size=16), {"shared_memory_byte_size": 16}])),
    *(_talk(f"bad output {i}", "10.08 3.05", _GOOD, _infer(_in(), each)) for i, each in enumerate([
        _in("x"), _in(offset=NBYTES), _in(offset=NBYTES - 8), _in(nbytes="x"), _in(7), _in(classification=2), _in(binary_data=True), _in(binary_data=3)])),
    _talk("gone", "10.01 10.06", _GOOD, _infer(_in()), _CLEAN, _infer(_in())),
]  # fmt: skip
