"""Spans of OpenTelemetry within the traces of requests.  Its packages are imported when there is something to trace."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

_MODE: Final = "mode=opentelemetry"
_URL: Final = "opentelemetry,url="
_RESOURCE: Final = "opentelemetry,resource="
_lock: Final = threading.Lock()
_tracers: Final[list[Any]] = []
"""The tracer of this process, once there is one."""


def raise_if_no_telemetry() -> None:
    """Raises ImportError with what to install."""
    try:
        importlib.import_module("opentelemetry.sdk.trace")
        importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        raise ImportError(
            "Tracing needs the packages of OpenTelemetry: pip install opentelemetry-api opentelemetry-sdk "
            "opentelemetry-exporter-otlp-proto-http"
        ) from error


def parse_trace_config(trace_config_list: Sequence[str]) -> tuple[str, Any]:
    """(URL of the collector, Resource of the spans), of `mode=opentelemetry`, `opentelemetry,url=...` and the like.

    Raises ValueError for another mode or no URL, ImportError without OpenTelemetry.
    """
    if _MODE not in trace_config_list:
        raise ValueError("Only opentelemetry mode is supported")
    urls = [each.removeprefix(_URL) for each in trace_config_list if each.startswith(_URL)]
    if not urls:
        raise ValueError("opentelemetry,url is required")
    attributes = {}
    for entry in trace_config_list:
        if entry.startswith(_RESOURCE):
            key, equals, value = entry.removeprefix(_RESOURCE).partition("=")
            if not (key and equals):
                raise ValueError(f"{entry}: a resource is {_RESOURCE}KEY=VALUE")
            attributes[key] = value
    raise_if_no_telemetry()
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    return urls[-1], Resource(attributes)


def build_proxy_tracer_from_triton_config(trace_config: Sequence[str]) -> Any:
    """A tracer that exports over OTLP/HTTP, from the server's trace settings.  Raises as parse_trace_config."""
    url, resource = parse_trace_config(trace_config)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    return provider.get_tracer("tisfast.pytriton")


def set_telemetry_tracer(tracer: Any) -> None:
    """The tracer of this process, once.  Raises ValueError the second time."""
    with _lock:
        if _tracers:
            raise ValueError("Telemetry tracer is already set")
        _tracers.append(tracer)


def get_telemetry_tracer() -> Any:
    """The tracer of this process, or None."""
    return _tracers[0] if _tracers else None


def trace_with(trace_config: Sequence[str]) -> None:
    """Have a tracer by these settings, unless there is one, or they are empty.  Raises as parse_trace_config."""
    if trace_config and get_telemetry_tracer() is None:
        set_telemetry_tracer(build_proxy_tracer_from_triton_config(trace_config))


def start_span_from_span(span: Any, name: str) -> Any:
    """A span within another one, which the caller ends; None where there is no tracer."""
    tracer = get_telemetry_tracer()
    if tracer is None or span is None:
        return None
    from opentelemetry import trace  # noqa: PLC0415

    return tracer.start_span(name, context=trace.set_span_in_context(span))


def start_span_from_remote(span_dict: dict[str, int], name: str) -> Any:
    """A span within one of another process, as `get_span_dict` tells it; None where there is no tracer."""
    tracer = get_telemetry_tracer()
    if tracer is None:
        return None
    from opentelemetry import trace  # noqa: PLC0415

    context = trace.SpanContext(
        trace_id=int(span_dict["trace_id"]),
        span_id=int(span_dict["span_id"]),
        is_remote=True,
        trace_flags=trace.TraceFlags(int(span_dict.get("trace_flags", trace.TraceFlags.SAMPLED))),
    )
    return start_span_from_span(trace.NonRecordingSpan(context), name)


def get_span_dict(span: Any) -> dict[str, int]:
    """What another process needs to go on with a trace."""
    context = span.get_span_context()
    return {"trace_id": context.trace_id, "span_id": context.span_id, "trace_flags": int(context.trace_flags)}


def end_span(span: Any, error: BaseException | None = None) -> None:
    """End it, as failed where there is an error.  None is no span."""
    if span is None:
        return
    if error is not None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415

        span.record_exception(error)
        span.set_status(StatusCode.ERROR, str(error))
    span.end()


@contextmanager
def traced_span(request: Any, span_name: str, **kwargs: Any) -> Iterator[None]:
    """A span within that of a request while the block runs; nothing where the request is not traced.

    kwargs: of the tracer's start_as_current_span.
    """
    tracer = get_telemetry_tracer()
    if request.span is None or tracer is None:
        yield
        return
    from opentelemetry import trace  # noqa: PLC0415

    with tracer.start_as_current_span(span_name, context=trace.set_span_in_context(request.span), **kwargs):
        yield
