"""Regions of clients, on a device of the tests' own."""

from __future__ import annotations

import threading

import pytest

from tests.native.helpers import LANE, HostDevice
from tisfast.operations.regions import ClientRegions


@pytest.fixture
def device():
    """It has memory `a`."""
    return HostDevice(a=b"0123456789")


@pytest.fixture
def regions(device):
    """Nothing is registered."""
    return ClientRegions(lambda: device, allowed=True)


@pytest.fixture
def busy():
    """busy(): from now on the lane of the device has other work, until `busy.over` is set."""

    class Busy:
        over = threading.Event()

        def __call__(self):
            LANE.post(self.over.wait)

    made = Busy()
    yield made
    made.over.set()
