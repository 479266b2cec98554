"""--trace-config and the flags it replaced."""

from __future__ import annotations

import pytest

from tisfast.config.tracing import OpenTelemetrySettings, TriggerSettings, read_trace_flags
from tisfast.errors import ConfigError


def read(*entries, environ=None, notices=None, **old):
    return read_trace_flags(entries, old, environ or {}, [] if notices is None else notices)


def test_defaults_trace_nothing():
    settings = read()
    assert (settings.mode, settings.file, settings.trigger) == ("triton", "", TriggerSettings((), 1000, -1, 0))


def test_triton_mode():
    settings = read(
        "triton,file=/tmp/t=1.json", "triton,log-frequency=50", "level=TIMESTAMPS", "level=TENSORS", "rate=10",
        "count=5",
    )  # fmt: skip
    assert settings.file == "/tmp/t=1.json"
    assert settings.trigger == TriggerSettings(("TIMESTAMPS", "TENSORS"), 10, 5, 50)


def test_levels_as_triton_reads_them():
    assert read("level=OFF", "level=TIMESTAMPS", "triton,file=f").trigger.levels == ("TIMESTAMPS",)
    assert read("level=MIN", "level=MAX", "triton,file=f").trigger.levels == ("TIMESTAMPS",)


def test_opentelemetry_mode():
    settings = read(
        "mode=opentelemetry", "opentelemetry,url=collector:4318/v1/traces", "opentelemetry,resource=service.name=mine",
        "opentelemetry,resource=k=v=w", "opentelemetry,bsp_schedule_delay=100", "rate=0",
        environ={"OTEL_BSP_MAX_QUEUE_SIZE": "77", "OTEL_BSP_SCHEDULE_DELAY": "9"},
    )  # fmt: skip
    assert settings.opentelemetry == OpenTelemetrySettings(
        "http://collector:4318/v1/traces", (("service.name", "mine"), ("k", "v=w")), 77, 100, 512
    )


def test_old_flags_work_and_are_named_as_deprecated():
    notices = []
    settings = read(notices=notices, trace_file="f", trace_level=["TIMESTAMPS"], trace_rate=5, trace_log_frequency=2)
    assert (settings.file, settings.trigger) == ("f", TriggerSettings(("TIMESTAMPS",), 5, -1, 2))
    assert [notice.split()[0] for notice in notices] == [
        "--trace-file", "--trace-level", "--trace-rate", "--trace-log-frequency",
    ]  # fmt: skip
    assert "use --trace-config triton,file=<filepath> instead" in notices[0]


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (["triton"], "is not of the form [MODE,]KEY=VALUE"),
        (["bogus,x=1"], 'trace mode option: bogus. Available options are "triton" and "opentelemetry"'),
        (["mode=bogus"], "invalid value for trace mode option: bogus."),
        (["level=BOGUS"], "invalid value for trace level option: BOGUS"),
        (["rate=x"], "'x' is not a whole number"),
        (["rate=-1"], "-1 is out of range [ 0, 4294967295 ]"),
        (["count=-5"], "-5 is out of range"),
        (["bogus=1"], "unknown setting 'bogus'"),
        (["triton,bogus=1"], "unknown setting 'bogus' of mode triton"),
        (["opentelemetry,bogus=1"], "unknown setting 'bogus' of mode opentelemetry"),
        (["opentelemetry,bsp_max_queue_size=x"], "'x' is not a whole number"),
        (["opentelemetry,resource=x"], "key=value"),
        (["opentelemetry,url=ftp://x"], "is not an http or https URL"),
        (["level=TIMESTAMPS"], "trace file name is not given"),
        (["level=TIMESTAMPS", "triton,file=f", "rate=0"], "sample rate must be non-zero"),
        (["mode=opentelemetry", "level=TENSORS"], "tensors are not traced in mode opentelemetry"),
    ],
)
def test_errors_name_the_flag_and_what_is_wrong(entries, says):
    with pytest.raises(ConfigError) as caught:
        read(*entries)
    assert "--trace-config " in str(caught.value)
    assert says in str(caught.value)
