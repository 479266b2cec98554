"""Regions of clients, on a device of the tests' own."""

from __future__ import annotations

import pytest

from tests.native.helpers import HostDevice
from tisfast.operations.regions import ClientRegions


@pytest.fixture
def device():
    """It has memory `a`."""
    return HostDevice(a=b"0123456789")


@pytest.fixture
def regions(device):
    """Nothing is registered."""
    return ClientRegions(lambda: device, allowed=True)
