"""Callables that worker processes load."""

import os

import numpy as np

from tisfast.pytriton.decorators import batch


@batch
def where(a):
    """The process that runs it."""
    return [np.full_like(a, os.getpid())]
