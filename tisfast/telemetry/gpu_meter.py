"""GPUs as metrics show them: read at intervals by a thread.  Layer 4 (telemetry)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, Protocol

from tisfast.native.nvml import GpuReading

CLOSE_SECONDS_MAX: Final = 1
"""For a reading that is under way: some ms for each GPU, unless the driver hangs."""


class GpuSource(Protocol):
    """The source of readings."""

    def read(self) -> list[GpuReading]:
        """All of them."""


class GpuMeter:
    """Reads a source at intervals.  Energy counts from the first reading on, as Triton's does."""

    def __init__(self, source: GpuSource, interval_seconds: float) -> None:
        self._source = source
        self._interval_seconds = interval_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tisfast-gpus", daemon=True)
        self._latest: Sequence[GpuReading] = ()
        self._energy_before: dict[str, float] = {}

    def start(self) -> None:
        """Read once now, and from now on in a thread."""
        self._look()
        self._thread.start()

    def close(self) -> None:
        """Read no more.  What is being read is waited for, as the source may go then."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS_MAX)

    @property
    def readings(self) -> Sequence[GpuReading]:
        """The last ones."""
        return self._latest

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_seconds):
            self._look()

    def _look(self) -> None:
        self._latest = [self._counted(reading) for reading in self._source.read()]

    def _counted(self, reading: GpuReading) -> GpuReading:
        if reading.energy_joules is None:
            return reading
        before = self._energy_before.setdefault(reading.uuid, reading.energy_joules)
        return reading._replace(energy_joules=reading.energy_joules - before)
