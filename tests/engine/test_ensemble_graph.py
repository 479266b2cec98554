"""Shapes on their way from one model to the next."""

from __future__ import annotations

import pytest

from tisfast.engine.ensemble_graph import fitted, reshape


@pytest.mark.parametrize(
    ("shape", "dims", "batches", "batch", "expected"),
    [
        ((2, 4), (4,), True, 2, (2, 4)),
        ((4,), (4,), False, 0, (4,)),
        ((4,), (4,), True, 0, (1, 4)),
        ((3, 4), (4,), True, 0, (3, 4)),
        ((1, 4), (4,), False, 1, (4,)),
        ((2, 4), (4,), False, 2, (2, 4)),
        ((1, 4), (-1, 4), False, 1, (1, 4)),
        ((7,), (-1,), True, 0, (1, 7)),
    ],
)
def test_models_with_and_without_batches(shape, dims, batches, batch, expected):
    assert fitted(shape, dims, batches, batch) == expected


@pytest.mark.parametrize(
    ("shape", "before", "after", "expected"),
    [
        ((5, 2, 2), (2, 2), (4,), (5, 4)),
        ((2, 2), (2, 2), (4,), (4,)),
        ((3, 7, 2), (-1, 2), (2, -1), (3, 2, 7)),
        ((1, 6), (6,), (6,), (1, 6)),
        ((4, 1), (1,), (), (4,)),
    ],
)
def test_reshape(shape, before, after, expected):
    assert reshape(shape, before, after) == expected
