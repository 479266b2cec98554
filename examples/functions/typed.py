"""Functions that are served and asked, and pass `mypy --strict`: python examples/functions/typed.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

import tisfast
from tisfast.client import Model

Rows = Annotated[NDArray[np.float32], tisfast.Shape(-1, 4)]


class Ends(NamedTuple):
    """The least and the greatest number of each row."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]


def ends(rows: Rows, factor: NDArray[np.float32] | None = None) -> Ends:
    """Any number of rows; without a factor they are as they are."""
    if factor is not None:
        rows = rows * factor
    return Ends(rows.min(axis=1), rows.max(axis=1))


def count(to: int) -> Iterator[int]:
    """An answer for each number: a stream."""
    yield from range(to)


class Centre:
    """Takes the mean of the rows that it was made with off."""

    def setup(self) -> None:
        """Before it serves."""
        self._mean = np.arange(4, dtype=np.float32)

    def predict(self, rows: Rows) -> Rows:
        """Rows around zero."""
        centred: Rows = rows - self._mean
        return centred


def main() -> None:
    """Serve all of them, and ask."""
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    with tisfast.serve(ends, count, Centre, http_port=0, grpc_port=0) as server:
        model: Model = server.client("ends")
        result = model.infer({"rows": rows})
        low: NDArray[np.float32] = result["low"]
        print(low.tolist(), result["high"].tolist())
        print([int(each["output"][0]) for each in server.client("count", protocol="grpc").stream(3)])
        print(server.client("Centre")(rows).tolist())
        server.remove("count")
        print(server.models)


if __name__ == "__main__":
    main()
