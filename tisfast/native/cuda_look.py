"""What the NVIDIA driver says of its GPUs without a CUDA context, as JSON on standard output.  Layer 1 (native).

A program of its own, `python cuda_look.py PARENT`, of the standard library alone: a driver that does not fit its kernel
module or its container may crash whoever begins it, and what it takes goes with the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"
NAME_BYTES: Final = 256
UUID_BYTES: Final = 16
SECONDS_MAX: Final = 60
"""Then the kernel ends this process: whoever waits for it has given up."""
PR_SET_PDEATHSIG: Final = 1
IS_INTEGRATED: Final = 18
SUPPORTS_IPC: Final = 125
"""CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, by which NVIDIA says to test for CUDA IPC.  Since CUDA 12.0: an older driver
refuses the question (CUDA_ERROR_INVALID_VALUE)."""


def look(library: Any) -> dict[str, Any]:
    """`gpus`, in the order in which CUDA counts them, or `error`.  library: what ctypes.CDLL returned."""
    count = ctypes.c_int()
    for name, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
        code = getattr(library, name)(*arguments)
        if code:
            return {"error": f"{name}: {_reason(library, code)}"}
    return {"gpus": [_gpu(library, number) for number in range(count.value)]}


def _gpu(library: Any, number: int) -> dict[str, Any]:
    """None for what it does not tell."""
    device, name = ctypes.c_int(), ctypes.create_string_buffer(NAME_BYTES)
    library.cuDeviceGet(ctypes.byref(device), number)
    library.cuDeviceGetName(name, NAME_BYTES, device)
    whole, own = _uuid(library, "cuDeviceGetUuid", device), _uuid(library, "cuDeviceGetUuid_v2", device)
    return {
        "name": name.value.decode(errors="replace"),
        "uuid": own or whole,
        "ipc": _attribute(library, SUPPORTS_IPC, device),
        "integrated": _attribute(library, IS_INTEGRATED, device),
        # Of a part of MIG the older call tells the GPU's UUID, the newer one the part's.
        "part": bool(whole and own and whole != own),
    }


def _attribute(library: Any, attribute: int, device: ctypes.c_int) -> int | None:
    value = ctypes.c_int()
    return None if library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) else value.value


def _uuid(library: Any, call: str, device: ctypes.c_int) -> str:
    """In hex; "" where the driver has no such call, or fails in it."""
    raw, function = (ctypes.c_ubyte * UUID_BYTES)(), getattr(library, call, None)
    return "" if function is None or function(ctypes.byref(raw), device) else bytes(raw).hex()


def _reason(library: Any, code: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorString(code, ctypes.byref(text))
    return text.value.decode(errors="replace") if text.value else f"error {code}"


def end_with(parent: int) -> None:
    """When whoever asks has ended, the kernel ends this process, too, also while a call of the driver's hangs."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before that
        raise SystemExit("whoever asked has ended")


def main() -> None:
    """Print what there is to say.  The argument is the id of the process that asks."""
    end_with(int(sys.argv[1]))
    signal.alarm(SECONDS_MAX)
    try:
        found = look(ctypes.CDLL(LIBRARY))
    except (OSError, AttributeError) as error:
        found = {"error": str(error)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
