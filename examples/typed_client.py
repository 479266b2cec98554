"""A program that asks add_sub and passes `mypy --strict`: python examples/typed_client.py [URL]."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from tisfast.client import Client, Result, TisError, Unavailable


def add(client: Client, a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of two vectors of four numbers."""
    result: Result = client.model("add_sub").infer({"INPUT0": a, "INPUT1": b}, timeout=5.0, outputs=["OUTPUT0"])
    total: NDArray[np.float32] = result["OUTPUT0"]
    return total


def main(url: str) -> int:
    """Ask, and say what went wrong."""
    numbers = np.arange(4, dtype=np.float32)
    try:
        with Client(url, timeout=30.0, retries=3) as client:
            print(add(client, numbers, numbers))
            futures = [client.model("add_sub").submit(numbers, numbers) for _ in range(8)]
            print(sum(float(future.result().OUTPUT0.sum()) for future in futures))
    except Unavailable as error:
        print(f"not now: {error.message}", file=sys.stderr)
        return 1
    except TisError as error:
        print(error.message, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000"))
