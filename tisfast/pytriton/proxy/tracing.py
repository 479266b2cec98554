"""Spans of the requests that a callable executes, within the traces that the server keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from tisfast.pytriton.proxy.telemetry import end_span, get_telemetry_tracer

SPAN: Final = "python_backend_execute"


class RequestSpans:
    """One span for each request that is traced; `spans` has None for others."""

    def __init__(self, requests: Sequence[Any]) -> None:
        """Starts them."""
        tracer = get_telemetry_tracer()
        self.spans: list[Any] = []
        try:
            for request in requests:
                self.spans.append(None if tracer is None else _start(tracer, request))
        except BaseException as error:
            self.end(error)
            raise

    def end(self, error: BaseException | None) -> None:
        """All of them, once."""
        spans, self.spans = self.spans, []
        for span in spans:
            end_span(span, error)


def _start(tracer: Any, request: Any) -> Any:
    text = request.trace().get_context()
    if not text:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    return tracer.start_span(SPAN, context=TraceContextTextMapPropagator().extract(json.loads(text)))
