"""Conversations over gRPC about system shared memory.  Each leaves nothing registered."""

# ruff: noqa: E501  (a table: one conversation, one line)
from __future__ import annotations

from typing import Any, Final

from tests.oracle.cases.grpc_calls import Call, infer, rpc, tensor
from tests.oracle.cases.regions import KEY, NBYTES

CLEAN: Final = rpc("unregister all", "10.06", "SystemSharedMemoryUnregister")
STATUS: Final = rpc("status", "10.05", "SystemSharedMemoryStatus")


def _register(name: str = "g", **fields: Any) -> Call:
    fields = {"key": KEY, "byte_size": NBYTES, **fields}
    return rpc("register", "10.02", "SystemSharedMemoryRegister", name=name, **fields)


def _unregister(name: str) -> Call:
    return rpc("unregister", "10.06", "SystemSharedMemoryUnregister", name=name)


def _place(nbytes: int = 16, name: str = "g", offset: int | None = None) -> dict[str, Any]:
    more = {} if offset is None else {"shared_memory_offset": {"int64_param": offset}}
    return {"shared_memory_region": {"string_param": name}, "shared_memory_byte_size": {"int64_param": nbytes}, **more}


def _infer(given: dict[str, Any], wanted: dict[str, Any] | None = None) -> Call:
    outputs = [] if wanted is None else [{"name": "OUTPUT0", "parameters": wanted}]
    inputs = [tensor("INPUT0", parameters=given)]
    return infer("infer", "10.08", model="identity_fp32", inputs=inputs, outputs=outputs, raw_input_contents=[])


TALKS: Final[dict[str, tuple[Call, ...]]] = {
    "a life": (_register(), STATUS, rpc("status of g", "10.05", "SystemSharedMemoryStatus", name="g"), _unregister("g"), STATUS),
    "twice": (_register(), _register()),
    "the other family": (_register(), rpc("cuda status", "10.05", "CudaSharedMemoryStatus", name="g"), rpc("cuda unregister", "10.06", "CudaSharedMemoryUnregister", name="g"), STATUS),
    "unknown ones are unregistered": (_unregister("x"),),
    "part of a file": (_register(byte_size=16, offset=4096), STATUS, _infer(_place()), _infer(_place(20))),
    **{f"bad register {name}": (_register(**fields),) for name, fields in {
        "no key": {"key": ""}, "no size": {"byte_size": 0}, "too large": {"byte_size": NBYTES + 1}, "beyond the end": {"offset": NBYTES - 4, "byte_size": 5},
        "unknown key": {"key": "/nobody_has_this", "byte_size": 4}, "key with a folder": {"key": "/a/b", "byte_size": 4}, "reserved": {"key": "/triton_python_backend_shm_region_x", "byte_size": 4}, "no name": {"name": ""},
        "an offset that overflows": {"offset": 2**64 - 32, "byte_size": 64},
    }.items()},
    "CUDA without GPU": (rpc("cuda register", "10.07", "CudaSharedMemoryRegister", name="c", raw_handle=b"A" * 64, byte_size=4),),
    "CUDA with a short handle": (rpc("cuda register", "10.07", "CudaSharedMemoryRegister", name="c", raw_handle=b"A", byte_size=4),),
    "CUDA without a name": (rpc("cuda register", "10.07", "CudaSharedMemoryRegister", raw_handle=b"A" * 64, byte_size=4),),
    "CUDA on a GPU below zero": (rpc("cuda register", "10.07", "CudaSharedMemoryRegister", name="c", raw_handle=b"A" * 64, byte_size=4, device_id=-1),),
    "input": (_register(), _infer(_place()), _infer(_place(offset=400)), _infer(_place(offset=NBYTES - 16))),
    "output": (_register(), _infer(_place(offset=64), _place(64, offset=4096)), _infer(_place(offset=4096)), _infer(_place(), _place(offset=5000))),
    "output too small": (_register(), _infer(_place(), _place(12, offset=4096))),
    **{f"bad input {name}": (_register(), _infer(place)) for name, place in {
        "of another region": _place(name="x"), "from the end": _place(offset=NBYTES), "across the end": _place(offset=NBYTES - 8), "too short": _place(8), "of a negative size": _place(-1), "at a negative offset": _place(offset=-1),
    }.items()},
    **{f"bad output {name}": (_register(), _infer(_place(), place)) for name, place in {
        "of another region": _place(name="x"), "from the end": _place(offset=NBYTES), "across the end": _place(offset=NBYTES - 8),
    }.items()},
    "gone": (_register(), _infer(_place()), CLEAN, _infer(_place())),
}  # fmt: skip
