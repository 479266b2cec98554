"""Memory that ran out, the machine's or a GPU's: known by the names of types, told in bytes, met by emptying caches.

Nothing is imported to find out: a library that this process has not loaded has run out of nothing.
"""

import ctypes
import errno
import gc
import re
import sys

_CHAIN_MAX = 8
_GPU_TYPES = frozenset({"OutOfMemoryError", "CUDAOutOfMemoryError"})  # torch, cupy
_GPU_TEXT = re.compile(
    r"CUDA (error: )?out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY"
    r"|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory|out_of_memory: (CUDA|RMM)"
    r"|OOM when allocating tensor.*device:GPU|\bcu[A-Z]\w*( failed)?: out of memory",
    re.IGNORECASE | re.DOTALL,
)
_HOST_TEXT = re.compile(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory|std::bad_alloc|\bbad allocation\b"
    r"|Failed to allocate memory for requested buffer|OOM when allocating tensor",
    re.IGNORECASE,
)
_ASKED = re.compile(r"(?:allocat\w+|buffer of size)\s+([\d][\d.,]*)\s*(bytes|[KMGT]i?B|B)?", re.IGNORECASE)
_UNITS = "KMGT"


class Shortage:
    """One allocation that could not be had.  where: "memory" or "GPU memory"; asked: bytes, 0 when not known."""

    __slots__ = ("asked", "where")

    def __init__(self, where, asked):
        """See the class."""
        self.where, self.asked = where, asked

    def __str__(self):
        """`ran out of GPU memory (2.0 GiB were asked for)`."""
        return f"ran out of {self.where}" + (f" ({amount(self.asked)} were asked for)" if self.asked else "")


def amount(nbytes):
    """Bytes as a person reads them."""
    size, unit = float(nbytes), "bytes"
    for name in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, name
    return f"{nbytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def shortage_of(error):
    """The Shortage that this exception, or one that it came from, tells of; None when it tells of none."""
    for _ in range(_CHAIN_MAX):
        if error is None:
            return None
        where = _where(error)
        if where is not None:
            return Shortage(where, _asked(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def empty_caches():
    """Have the libraries that this process has loaded give back what they keep; returns the names of those that did.

    The exception that told of the shortage must be gone: its frames hold the model's tensors.
    """
    gc.collect()
    emptied = []
    for name, empty in (("torch", _empty_torch), ("cupy", _empty_cupy)):
        module = sys.modules.get(name)
        if module is None:
            continue
        try:
            if empty(module):
                emptied.append(name)
        except Exception as error:  # a library in any state: what it cannot do does not keep others from it
            emptied.append(f"{name} (which raised {type(error).__name__})")
    trim_heap()
    return emptied


def _where(error):
    text = _text(error)
    if _GPU_TYPES.intersection(kind.__name__ for kind in type(error).__mro__) or _GPU_TEXT.search(text):
        return "GPU memory"
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "memory"
    if isinstance(error, Exception) and _HOST_TEXT.search(text):
        return "GPU memory" if "cuda" in text.lower() else "memory"
    return None


def _asked(error):
    """numpy says shape and type; others write it into their text, in bytes or in units."""
    try:
        count = 1
        for size in error.shape:
            count *= int(size)
        return count * int(error.dtype.itemsize)
    except Exception:  # not numpy's
        found = _ASKED.search(_text(error))
    if found is None:
        return 0
    number, unit = found.groups()
    try:
        size = float(number.rstrip(".,").replace(",", ""))
    except ValueError:
        return 0
    power = _UNITS.find(unit[0].upper()) + 1 if unit else 0
    return int(size * 1024**power)


def _text(error):
    try:
        return str(error)
    except Exception:  # a model's own class may raise anything
        return ""


def _empty_torch(torch):
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return False
    cuda.empty_cache()
    return True


def _empty_cupy(cupy):
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    return True


def trim_heap():
    """Give back what is free of the heap, of which an instance keeps up to TRIM_THRESHOLD_BYTES."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(0)
