"""Measurements as values."""

from __future__ import annotations

from tisfast.bench.results import RECORD


def test_a_record_is_one_cache_line():
    assert RECORD.itemsize == 64
