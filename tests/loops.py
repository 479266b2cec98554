"""A uvloop for a test, ended whatever the test left open on it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop


@contextmanager
def fresh_loop() -> Iterator[uvloop.Loop]:
    """A loop of one's own; who ends well leaves no transport open.

    uvloop closes what is open and warns of it.  A warning that is an error, as pyproject.toml has it, stops it
    half-way: it then waits for ever for what it did not close, and the test that failed is never heard of.
    """
    loop = uvloop.new_event_loop()
    try:
        yield loop
    finally:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", ResourceWarning)
            loop.close()
    assert not found, "\n".join(str(warning.message) for warning in found)
