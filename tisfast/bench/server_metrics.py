"""The server's GPU metrics while it is measured (--collect-metrics).  Layer 5 (bench)."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from tisfast.client import Client
from tisfast.errors import TisError

FAMILIES: Final = {
    "nv_gpu_utilization": "utilization",
    "nv_gpu_power_usage": "power_watts",
    "nv_gpu_memory_used_bytes": "memory_used",
    "nv_gpu_memory_total_bytes": "memory_total",
}
LINE: Final = re.compile(r"^(\w+)\{[^}]*gpu_uuid=\"([^\"]*)\"[^}]*\} (\S+)", re.MULTILINE)
SAMPLES_MAX: Final = 100_000
"""Kept at one time; older ones are forgotten."""


class Sample(NamedTuple):
    """One look.  gpus: figures by UUID."""

    at_ns: int
    gpus: Mapping[str, Mapping[str, float]]


def read_metrics(text: str) -> dict[str, dict[str, float]]:
    """The GPUs' figures by UUID, from a page in Prometheus' form."""
    found: dict[str, dict[str, float]] = {}
    for family, uuid, value in LINE.findall(text):
        name = FAMILIES.get(family)
        if name is not None:
            try:
                found.setdefault(uuid, {})[name] = float(value)
            except ValueError:
                continue  # a number in a form of its own is none of ours
    return found


def combined(samples: list[Sample]) -> dict[str, dict[str, float]]:
    """Of some looks: utilization and power as averages, memory as the most, its total as the last."""
    by_name: dict[str, dict[str, list[float]]] = {}
    for sample in samples:
        for uuid, values in sample.gpus.items():
            for name, value in values.items():
                by_name.setdefault(uuid, {}).setdefault(name, []).append(value)
    return {uuid: {name: _combined(name, values) for name, values in names.items()} for uuid, names in by_name.items()}


def _combined(name: str, values: list[float]) -> float:
    if name == "memory_used":
        return max(values)
    return values[-1] if name == "memory_total" else sum(values) / len(values)


class ServerMetrics:
    """Looks every interval, in a thread of its own."""

    def __init__(self, client: Client, url: str, interval_ms: int) -> None:
        self._client, self._url, self._seconds = client, url.removesuffix("/metrics"), interval_ms / 1000
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="bench-metrics", daemon=True)
        self._failure = (-1, "")  # the last one: when, and why

    def look(self) -> None:
        """Once.  Raises TisError when there is no such page."""
        self._samples.append(Sample(time.monotonic_ns(), read_metrics(self._client.metrics(self._url))))

    def start(self) -> None:
        """Look on until `close`."""
        self._thread.start()

    def _look_on(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self.look()
            except TisError as error:
                self._failure = (time.monotonic_ns(), error.message)

    def between(self, began_ns: int, ended_ns: int) -> tuple[dict[str, dict[str, float]], str]:
        """What was seen in that time, and in a sentence why it may be less than all, or ""."""
        within = [each for each in list(self._samples) if began_ns <= each.at_ns <= ended_ns]
        failed_ns, failure = self._failure
        note = ""
        if began_ns <= failed_ns <= ended_ns:
            note = f"the server's metrics could not be read all the time: {failure}"
        elif not within:
            note = "no look at the server's metrics was in this time: lower --metrics-interval, or raise -p"
        found = combined(within)
        if not found and not note:
            note = "the server's page of metrics has no figures of GPUs"
        return found, note

    def close(self) -> None:
        """Ends the thread."""
        self._ended.set()
