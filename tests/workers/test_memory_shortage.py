"""Memory that ran out: how it is known, whichever library says it, and what has its caches emptied."""

from __future__ import annotations

import errno
import sys
from types import ModuleType

import pytest
from tisfast_worker.memory_shortage import Shortage, amount, empty_caches, shortage_of

CUDA = "CUDA out of memory. Tried to allocate 20.50 MiB. GPU 0 has a total capacity of 79.10 GiB, 12 MiB free."


class OutOfMemoryError(RuntimeError):
    """As torch and cupy call theirs."""


class XlaRuntimeError(RuntimeError):
    pass


class ArrayMemoryError(MemoryError):
    shape = (1000, 1000)

    class dtype:  # noqa: N801
        itemsize = 8


class Mute(MemoryError):
    def __str__(self):
        raise ValueError("not a word")


@pytest.mark.parametrize(
    ("error", "where", "asked"),
    [
        (OutOfMemoryError("Out of memory allocating 8,000,000,512 bytes (so far: 0)"), "GPU memory", 8000000512),
        (MemoryError(), "memory", 0),
        (MemoryError("std::bad_alloc"), "memory", 0),
        (ArrayMemoryError("Unable to allocate 7.63 MiB for an array"), "memory", 8_000_000),
        (MemoryError("Unable to allocate 7.50 GiB for an array"), "memory", int(7.5 * 1024**3)),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory", 0),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."), "memory", 4096),
        (RuntimeError("Failed to allocate memory for requested buffer of size 1048576"), "memory", 1048576),
        (OutOfMemoryError(CUDA), "GPU memory", int(20.5 * 1024**2)),
        (XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12 bytes."), "GPU memory", 12),
        (RuntimeError("CUDA error: out of memory"), "GPU memory", 0),
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), "GPU memory", 0),
        (MemoryError("std::bad_alloc: out_of_memory: CUDA error at: /x"), "GPU memory", 0),
        (RuntimeError("cuMemAlloc failed: out of memory"), "GPU memory", 0),
        (RuntimeError("joining the inputs failed: cuMemcpyHtoDAsync_v2: out of memory"), "GPU memory", 0),
        (Mute(), "memory", 0),
    ],
)  # fmt: skip
def test_shortages_are_known_by_type_or_words(error, where, asked):
    found = shortage_of(error)
    assert (found.where, found.asked) == (where, asked)


@pytest.mark.parametrize(
    "error", [ValueError("no"), OSError(errno.ENOENT, "no file"), SystemExit(1), RuntimeError("memory of an elephant")]
)
def test_what_has_another_reason_is_none(error):
    assert shortage_of(error) is None


def test_what_a_model_raises_instead_is_seen_through():
    try:
        try:
            raise OutOfMemoryError(CUDA)
        except RuntimeError as error:
            raise ValueError("cannot predict") from error
    except ValueError as error:
        assert shortage_of(error).where == "GPU memory"
    try:
        try:
            raise MemoryError
        except MemoryError:
            raise ValueError("something else") from None
    except ValueError as error:
        assert shortage_of(error) is None


def test_a_shortage_in_words():
    assert str(Shortage("GPU memory", 1536)) == "ran out of GPU memory (1.5 KiB were asked for)"
    assert str(Shortage("memory", 0)) == "ran out of memory"
    assert [amount(n) for n in (1, 1 << 20, 3 << 40, 1 << 50)] == ["1 bytes", "1.0 MiB", "3.0 TiB", "1024.0 TiB"]


def test_caches_of_loaded_libraries_are_emptied(monkeypatch):
    torch, calls = ModuleType("torch"), []
    torch.cuda = ModuleType("cuda")
    torch.cuda.is_initialized = lambda: True
    torch.cuda.empty_cache = lambda: calls.append("torch")
    cupy = ModuleType("cupy")
    cupy.get_default_memory_pool = lambda: 1 / 0
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert empty_caches() == ["torch", "cupy (which raised ZeroDivisionError)"]
    assert calls == ["torch"]
    torch.cuda.is_initialized = lambda: False
    monkeypatch.delitem(sys.modules, "cupy")
    assert empty_caches() == []
