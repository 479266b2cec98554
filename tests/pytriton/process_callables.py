"""Callables that worker processes load."""

import os

import numpy as np

from tisfast.pytriton.decorators import batch
from tisfast.pytriton.exceptions import PyTritonUnrecoverableError


@batch
def where(a):
    """The process that runs it."""
    return [np.full_like(a, os.getpid())]


class Adder:
    """Its method is decorated, as PyTriton's users write it."""

    def __init__(self, by):
        self.by = by

    @batch
    def infer(self, a):
        """Add."""
        return [a + self.by]


class OnlyHere:
    """Loaded by its own program alone, until it is forgiving."""

    forgiving = False

    def __getstate__(self):
        return {"maker": 0 if self.forgiving else os.getpid()}

    def __setstate__(self, state):
        if state["maker"]:
            raise RuntimeError(f"made in process {state['maker']}")

    def __call__(self, requests):
        return [{"o": request["a"]} for request in requests]


calls = []


def calls_before(requests):
    """How many calls this process has had."""
    calls.append(len(requests))
    return [{"o": 0 * request["a"] + len(calls) - 1} for request in requests]


def give_up(requests):
    """Nothing can go on."""
    raise PyTritonUnrecoverableError("out of memory\nfor good")
