"""Flags about the machine's resources: GPU limits and the memory budget.  Layer 2 (config)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from typing import Final

from tisfast import limits
from tisfast.errors import ConfigError

GPU_LIMIT: Final = "model-load-gpu-limit"
CUDA_POOL: Final = "cuda-memory-pool-byte-size"
BUDGET: Final = "model-memory-budget"
COMPUTE_CAPABILITY_MIN: Final = 6.0  # Triton's default
_UNITS: Final = {
    "": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30,
    "TI": 1 << 40, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "KB": 10**3, "MB": 10**6,
    "GB": 10**9, "TB": 10**12,
}  # fmt: skip
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def read_gpu_limits(texts: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """(GPU, fraction) of --model-load-gpu-limit GPU:FRACTION; the last one of a GPU counts.  Raises ConfigError."""
    if len(texts) > limits.GPU_LIMITS_MAX:
        raise ConfigError(f"--{GPU_LIMIT} is given more than {limits.GPU_LIMITS_MAX} times", key=GPU_LIMIT)
    return tuple(dict(_gpu_limit(text) for text in texts).items())


def _gpu_limit(text: str) -> tuple[int, float]:
    device, colon, fraction = text.partition(":")
    if not colon:
        raise ConfigError(
            f"--{GPU_LIMIT} option format is '<device_id>:<fraction>'. Got {text}", key=GPU_LIMIT,
            hint="0:0.6 lets nothing be loaded on GPU 0 while more than 60 % of its memory is in use",
        )  # fmt: skip
    number, share = _parsed(text, int, device), _parsed(text, float, fraction)
    if number < 0:
        raise ConfigError(f"--{GPU_LIMIT} expects device ID >= 0, got {device}", key=GPU_LIMIT)
    if not 0.0 <= share <= 1.0:
        raise ConfigError(
            f"--{GPU_LIMIT} expects limit fraction to be in range [0.0, 1.0], got {share:f}", key=GPU_LIMIT
        )
    return int(number), share


def _parsed(text: str, kind: type[int] | type[float], part: str) -> float:
    try:
        return kind(part)
    except ValueError:
        raise ConfigError(
            f"--{GPU_LIMIT}={text}: {part!r} is no number", key=GPU_LIMIT, hint="the format is DEVICE:FRACTION"
        ) from None


def read_cuda_pools(texts: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """(GPU, bytes) of --cuda-memory-pool-byte-size GPU:BYTES; the last one of a GPU counts.  Raises ConfigError."""
    if len(texts) > limits.GPU_LIMITS_MAX:
        raise ConfigError(f"--{CUDA_POOL} is given more than {limits.GPU_LIMITS_MAX} times", key=CUDA_POOL)
    pools = {}
    for text in texts:
        device, _, nbytes = text.partition(":")
        if not (device.isdecimal() and nbytes.isdecimal()):
            raise ConfigError(
                f"--{CUDA_POOL} option format is '<GPU>:<bytes>'. Got {text:.60}", key=CUDA_POOL,
                hint="0:268435456 has the server lend 256 MiB of GPU 0 to models; 0:0 none",
            )  # fmt: skip
        gpu = _bounded(text, "GPU", device, limits.DEVICE_MAX)
        pools[gpu] = _bounded(text, "bytes", nbytes, limits.CUDA_POOL_BYTES_MAX)
    return tuple(pools.items())


def _bounded(text: str, name: str, digits: str, most: int) -> int:
    """A number of --cuda-memory-pool-byte-size.  Raises ConfigError."""
    if len(digits.lstrip("0")) <= len(str(most)) and int(digits) <= most:  # Python takes long to read very many
        return int(digits)
    raise ConfigError(f"--{CUDA_POOL}={text:.60}: {name} is {digits:.30}, may be 0 to {most}", key=CUDA_POOL)


def read_budget(text: str | None) -> int:
    """Bytes of --model-memory-budget, such as 8000000000, 8GB or 7.5GiB; 0 without one.  Raises ConfigError."""
    if text is None:
        return 0
    found = _AMOUNT.fullmatch(text.strip())
    unit = _UNITS.get(found[2].upper()) if found else None
    nbytes = float(found[1]) * unit if found and unit else 0.0
    if not limits.MEMORY_BUDGET_BYTES_MIN <= nbytes < inf:
        raise ConfigError(
            f"--{BUDGET}={text:.60} is no amount of memory of {limits.MEMORY_BUDGET_BYTES_MIN} bytes or more",
            key=BUDGET,
            hint="give bytes, or a number with KB, MB, GB, TB (powers of ten), KiB, MiB, GiB or TiB",
        )  # fmt: skip
    return int(nbytes)
