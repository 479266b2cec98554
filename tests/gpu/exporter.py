"""A client's process with device memory: told over stdin what to do, answers over stdout, a line each.

python exporter.py NBYTES        prints the IPC handle in hex of so many zeros
write HEX                        the memory's first bytes are these
read N                           its first N bytes, in hex
free                             give it back to the GPU
"""

from __future__ import annotations

import ctypes
import sys


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(library, name)(*arguments)
    if code:
        sys.exit(f"{name} failed with {code}")


def main() -> None:
    """Until stdin ends."""
    library = ctypes.CDLL("libcuda.so.1")
    device, context, memory, handle = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), _Handle()
    _call(library, "cuInit", 0)
    _call(library, "cuDeviceGet", ctypes.byref(device), 0)
    _call(library, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call(library, "cuCtxSetCurrent", context)
    _call(library, "cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(int(sys.argv[1])))
    _call(library, "cuIpcGetMemHandle", ctypes.byref(handle), memory)
    nothing = bytes(int(sys.argv[1]))  # a real GPU gives memory that has what was there before
    _call(library, "cuMemcpyHtoD_v2", memory, nothing, ctypes.c_size_t(len(nothing)))
    print(bytes(handle.reserved).hex(), flush=True)
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "write":
            data = bytes.fromhex(rest)
            _call(library, "cuMemcpyHtoD_v2", memory, data, ctypes.c_size_t(len(data)))
            print("ok", flush=True)
        elif word == "free":
            _call(library, "cuMemFree_v2", memory)
            print("ok", flush=True)
        else:
            found = ctypes.create_string_buffer(int(rest))
            _call(library, "cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(len(found)))
            print(found.raw.hex(), flush=True)


if __name__ == "__main__":
    main()
