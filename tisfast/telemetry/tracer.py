"""Tracing of one server: which requests are traced, and where traces go.  Layer 4 (telemetry).

While nothing can be traced, fronts hold None and a request pays for looking at it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from tisfast import limits
from tisfast.telemetry.trace import Context, Trace, read_context
from tisfast.telemetry.trace_file import TraceFiles
from tisfast.telemetry.trace_otlp import OtlpExporter
from tisfast.telemetry.trace_outbox import Outbox
from tisfast.telemetry.trace_settings import LiveTraceSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tisfast.config.tracing import TraceSettings as TraceFlags

_HEADER: Final = re.compile(rb"\r\n(traceparent|tracestate):[ \t]*([^\r\n]*)", re.IGNORECASE)


class _Sink(Protocol):
    def write(self, traces: Sequence[Trace]) -> None: ...
    def close(self) -> None: ...


class Tracer:
    """flags: of the command line; knows: whether a model of that name exists."""

    def __init__(self, flags: TraceFlags, knows: Callable[[str], bool]) -> None:
        self.settings = LiveTraceSettings(flags, knows, self._switch)
        self._propagates = flags.mode == "opentelemetry"
        self._switches: list[Callable[[Tracer | None], None]] = []
        self._numbers = itertools.count(1).__next__
        self._exporter = OtlpExporter(flags.opentelemetry) if self._propagates else None
        self._sink: _Sink = self._exporter or TraceFiles(flags.file)
        otel = flags.opentelemetry
        self._outbox = Outbox(
            "tisfast-trace",
            self._sink.write,
            queued_max=otel.bsp_max_queue_size if self._propagates else limits.TRACES_QUEUED_MAX,
            bytes_max=limits.TRACES_BYTES_MAX,
            portion_max=otel.bsp_max_export_batch_size if self._propagates else limits.TRACES_WRITTEN_MAX,
            delay_seconds=otel.bsp_schedule_delay / 1000 if self._propagates else 0.0,
        )

    def attach(self, switch: Callable[[Tracer | None], None]) -> None:
        """switch: called now and whenever it changes with the tracer to ask about requests, None for no tracing."""
        self._switches.append(switch)
        switch(self if self.settings.on else None)

    def sample(self, model: str, traceparent: str = "", tracestate: str = "") -> Trace | None:
        """A trace for this request if it is to be traced.  The two headers count in mode opentelemetry only."""
        context = read_context(traceparent, tracestate) if traceparent and self._propagates else None
        return self._sample(model, context)

    def sample_http(self, model: str, head: bytes) -> Trace | None:
        """Decide from the raw head of an HTTP request."""
        if not self._propagates:
            return self._sample(model, None)
        found = {name.lower(): value.decode("latin-1") for name, value in _HEADER.findall(head)}
        return self.sample(model, found.get(b"traceparent", ""), found.get(b"tracestate", ""))

    def close(self) -> None:
        """Write what waits, and end; seconds at most."""
        if self._exporter is not None:
            self._exporter.stop()
        self._outbox.close(limits.TRACE_FLUSH_SECONDS_MAX)
        self._sink.close()

    def _sample(self, model: str, context: Context | None) -> Trace | None:
        trigger = self.settings.trigger(model)
        if not trigger.fires(asked=context is not None):
            return None
        if not trigger.remaining:
            self._switch()
        settings = trigger.settings
        number = self._numbers()
        trace = Trace(number, settings.levels, settings.log_frequency, context, self._outbox.put, self._numbers)
        trace.propagates = self._propagates
        return trace

    def _switch(self) -> None:
        for switch in self._switches:
            switch(self if self.settings.on else None)
