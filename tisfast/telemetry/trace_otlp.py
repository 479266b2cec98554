"""Traces as OpenTelemetry spans, sent to a receiver as OTLP/HTTP JSON.  Layer 4 (telemetry).

Of our own, and not OpenTelemetry's SDK: three spans with their events through it cost 100 us of the event loop per
request, and 15 MB.  Here a request notes its times, and everything else is done by the outbox's thread.
"""

from __future__ import annotations

import http.client
import json
import logging
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tisfast import __version__, limits

if TYPE_CHECKING:
    from tisfast.config.tracing import OpenTelemetrySettings
    from tisfast.telemetry.trace import Mark, Trace

log = logging.getLogger("tisfast.trace")
RETRYABLE: Final = (429, 502, 503, 504)
SERVER_KIND: Final = 2
SDK: Final = {
    "telemetry.sdk.language": "python",
    "telemetry.sdk.name": "tisfast",
    "telemetry.sdk.version": __version__,
    "service.name": "triton-inference-server",
}


class OtlpExporter:
    """Sends portions of traces to `settings.url`.  Used by one thread, but for `stop`."""

    def __init__(self, settings: OpenTelemetrySettings) -> None:
        url = urlsplit(settings.url)
        self._url = settings.url
        self._secure, self._host, self._port = url.scheme == "https", url.hostname or "", url.port
        self._target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._resource = {"attributes": _attributes({**SDK, **dict(settings.resource)})}
        self._connection: http.client.HTTPConnection | None = None
        self._stopping = threading.Event()
        self._failing = False

    def write(self, traces: Sequence[Trace]) -> None:
        """Send; a receiver that is busy is asked again, a bounded number of times.  What is lost is told."""
        wall_ns = time.time_ns() - time.monotonic_ns()
        spans = [span for trace in traces for span in spans_of(trace, wall_ns)]
        scope = {"scope": {"name": "triton-server"}, "spans": spans}
        body = json.dumps({"resourceSpans": [{"resource": self._resource, "scopeSpans": [scope]}]}).encode()
        problem = self._deliver(body)
        if problem and not self._failing:
            log.error("%d traces are lost: OpenTelemetry receiver %s: %s", len(traces), self._url, problem)
        self._failing = bool(problem)

    def stop(self) -> None:
        """The server ends: no further waiting for a busy receiver.  Any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _deliver(self, body: bytes) -> str:
        """Why it was not delivered, "" when it was."""
        problem = ""
        delay = limits.OTLP_DELAY_SECONDS_FIRST
        for attempt in range(limits.OTLP_ATTEMPTS_MAX):
            if attempt:
                if self._stopping.wait(delay):
                    break
                delay *= 2
            try:
                status, problem = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                problem = str(error) or type(error).__name__
                continue
            if status < 300:
                return ""
            if status not in RETRYABLE:
                break
        return problem

    def _post(self, body: bytes) -> tuple[int, str]:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=limits.OTLP_SECONDS_MAX)
        self._connection.request("POST", self._target, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read(limits.OTLP_ANSWER_BYTES_MAX)
        if not answer.isclosed():  # longer than anything it may say: not worth reading to its end
            self.close()
        return answer.status, f"{answer.status} {answer.reason} {text[:200]!r}"


def spans_of(trace: Trace, wall_ns: int) -> list[dict[str, Any]]:
    """Triton's three spans, innermost first: compute within the model's within InferRequest.

    A child has the first two, within the model's span of its parent.

    wall_ns: nanoseconds since the epoch when CLOCK_MONOTONIC was 0.
    """
    context = trace.context
    known = trace.own or context
    trace_id, state = (known.trace_id, known.state) if known else (secrets.token_hex(16), "")
    ids = [secrets.token_hex(8) for _ in range(3)]
    if trace.own is not None:
        ids[1] = trace.own.span_id
    outermost = 1 if trace.parent_number else 0

    def span(depth: int, name: str, marks: Iterable[Mark], **more: object) -> dict[str, Any]:
        found = sorted(marks, key=lambda mark: mark.ns)
        parent = ids[depth - 1] if depth > outermost else context.span_id if context else ""
        return {
            "traceId": trace_id,
            "spanId": ids[depth],
            **({"parentSpanId": parent} if parent else {}),
            **({"traceState": state} if state else {}),
            "name": name,
            "kind": SERVER_KIND,
            "startTimeUnixNano": str(found[0].ns + wall_ns),
            "endTimeUnixNano": str(found[-1].ns + wall_ns),
            "events": [{"name": mark.name, "timeUnixNano": str(mark.ns + wall_ns)} for mark in found],
            **more,
        }

    about = {
        "triton.model_name": trace.model,
        "triton.model_version": int(trace.version or -1),
        "triton.trace_id": trace.number,
        "triton.trace_parent_id": trace.parent_number,
        **({"triton.request_id": trace.request_id} if trace.request_id else {}),
    }
    spans = [span(2, "compute", trace.compute)] if trace.compute else []
    spans += [span(1, trace.model, trace.engine, attributes=_attributes(about))] if trace.engine else []
    return spans if trace.parent_number else [*spans, span(0, "InferRequest", trace.front)]


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
    ]
