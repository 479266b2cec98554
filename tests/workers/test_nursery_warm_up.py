"""The rehearsal in the nursery: it is held under every interpreter, leaves nothing open, and must not be in the way."""

from __future__ import annotations

import sys

from tisfast_worker import nursery_warm_up
from tisfast_worker.native import Library
from tisfast_worker.serve import backend_module

from tests.descriptors import open_descriptors
from tests.workers.driver import LIBRARY, NurseryProcess


def test_it_leaves_nothing_open_and_no_modules():
    import numpy  # noqa: F401 - requests are served only where there is numpy

    library, backend = Library(str(LIBRARY)), backend_module("python").Backend
    nursery_warm_up.rehearse(library, backend)
    before, modules = open_descriptors(), set(sys.modules)
    nursery_warm_up.rehearse(library, backend)
    assert open_descriptors() <= before and set(sys.modules) == modules


def test_what_goes_wrong_in_it_is_for_the_nursery_to_tell():
    from tisfast_worker import nursery

    class Broken:
        def __init__(self, model):
            raise ValueError("no stage")

    said = nursery._rehearsed(Library(str(LIBRARY)), Broken)
    assert said == "instances will load more slowly, as the rehearsal failed: ValueError: no stage"


def test_it_is_held_under_every_interpreter(python, capfd):
    nursery = NurseryProcess(python)
    try:
        hello, _ = nursery.receive()
        assert hello["t"] == "nursery" and hello["threads"] == 1
    finally:
        nursery.close()
    assert "rehearsal" not in capfd.readouterr().err
