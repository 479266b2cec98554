"""--trace-config and the flags it replaced."""

from __future__ import annotations

import pytest

from tests.config.loading import shown
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


REFUSED = [
    (
        "triton",
        "trace-config | --trace-config triton: is not of the form [MODE,]KEY=VALUE | for instance "
        "triton,file=/tmp/trace.json",
    ),
    (
        "=x",
        "trace-config | --trace-config =x: is not of the form [MODE,]KEY=VALUE | for instance "
        "triton,file=/tmp/trace.json",
    ),
    (
        "rate=",
        "trace-config | --trace-config rate=: is not of the form [MODE,]KEY=VALUE | for instance "
        "triton,file=/tmp/trace.json",
    ),
    (
        "triton,=x",
        "trace-config | --trace-config triton,=x: is not of the form [MODE,]KEY=VALUE | for instance "
        "triton,file=/tmp/trace.json",
    ),
    (
        "bogus,x=1",
        'trace-config | --trace-config bogus,x=1: invalid value for trace mode option: bogus. Available options '
        'are "triton" and "opentelemetry"',
    ),
    (
        "triton,opentelemetry,x=1",
        'trace-config | --trace-config triton,opentelemetry,x=1: invalid value for trace mode option: '
        'triton,opentelemetry. Available options are "triton" and "opentelemetry"',
    ),
    (
        "mode=bogus",
        'trace-config | --trace-config mode=bogus: invalid value for trace mode option: bogus. Available options '
        'are "triton" and "opentelemetry"',
    ),
    (
        "level=BOGUS",
        "trace-config | --trace-config level=BOGUS: invalid value for trace level option: BOGUS | OFF, TIMESTAMPS "
        "or TENSORS",
    ),
    (
        "level=timestamps",
        "trace-config | --trace-config level=timestamps: invalid value for trace level option: timestamps | OFF, "
        "TIMESTAMPS or TENSORS",
    ),
    ("rate=x", "trace-config | --trace-config rate=x: 'x' is not a whole number"),
    ("rate=-1", "trace-config | --trace-config rate=-1: -1 is out of range [ 0, 4294967295 ]"),
    (
        "rate=4294967296",
        "trace-config | --trace-config rate=4294967296: 4294967296 is out of range [ 0, 4294967295 ]",
    ),
    ("rate=1.5", "trace-config | --trace-config rate=1.5: '1.5' is not a whole number"),
    ("count=-2", "trace-config | --trace-config count=-2: -2 is out of range [ -1, 2147483647 ]"),
    (
        "count=2147483648",
        "trace-config | --trace-config count=2147483648: 2147483648 is out of range [ -1, 2147483647 ]",
    ),
    ("bogus=1", "trace-config | --trace-config bogus=1: unknown setting 'bogus' | known: mode, level, rate, count"),
    ("file=x", "trace-config | --trace-config file=x: unknown setting 'file' | known: mode, level, rate, count"),
    (
        "triton,bogus=1",
        "trace-config | --trace-config triton,bogus=1: unknown setting 'bogus' of mode triton | known: file, "
        "log-frequency",
    ),
    (
        "triton,log-frequency=-1",
        "trace-config | --trace-config triton,log-frequency=-1: -1 is out of range [ 0, 4294967295 ]",
    ),
    ("triton,log-frequency=x", "trace-config | --trace-config triton,log-frequency=x: 'x' is not a whole number"),
    (
        "opentelemetry,bogus=1",
        "trace-config | --trace-config opentelemetry,bogus=1: unknown setting 'bogus' of mode opentelemetry | "
        "known: url, resource, bsp_*",
    ),
    (
        "opentelemetry,bsp_max_queue_size=x",
        "trace-config | --trace-config opentelemetry,bsp_max_queue_size=x: 'x' is not a whole number",
    ),
    (
        "opentelemetry,bsp_max_queue_size=0",
        "trace-config | --trace-config opentelemetry,bsp_max_queue_size=0: 0 is out of range [ 1, 4294967295 ]",
    ),
    (
        "opentelemetry,bsp_schedule_delay=0",
        "trace-config | --trace-config opentelemetry,bsp_schedule_delay=0: 0 is out of range [ 1, 4294967295 ]",
    ),
    (
        "opentelemetry,bsp_max_export_batch_size=4294967296",
        "trace-config | --trace-config opentelemetry,bsp_max_export_batch_size=4294967296: 4294967296 is out of "
        "range [ 1, 4294967295 ]",
    ),
    (
        "opentelemetry,resource=x",
        "trace-config | --trace-config opentelemetry,resource=x: a resource attribute is of the form key=value | "
        "resource=service.name=mine",
    ),
    (
        "opentelemetry,url=ftp://x",
        "trace-config | --trace-config opentelemetry,url=ftp://x: is not an http or https URL",
    ),
    (
        "opentelemetry,url=http://",
        "trace-config | --trace-config opentelemetry,url=http://: is not an http or https URL",
    ),
    (
        "opentelemetry,url=http://[::1",
        "trace-config | --trace-config opentelemetry,url=http://[::1: is not an http or https URL",
    ),
    (
        "opentelemetry,url=http://h:99999",
        "trace-config | --trace-config opentelemetry,url=http://h:99999: is not an http or https URL",
    ),
    (
        "opentelemetry,url=h:x",
        "trace-config | --trace-config opentelemetry,url=http://h:x: is not an http or https URL",
    ),
    (
        "opentelemetry,url=http://h:0",
        "trace-config | --trace-config opentelemetry,url=http://h:0: is not an http or https URL",
    ),
    (
        "level=TIMESTAMPS",
        "trace-config | --trace-config level=TIMESTAMPS: trace file name is not given, so these traces would be "
        "written nowhere | add --trace-config triton,file=<filepath>",
    ),
    (
        "level=TENSORS level=TIMESTAMPS",
        "trace-config | --trace-config level=TENSORS: trace file name is not given, so these traces would be "
        "written nowhere | add --trace-config triton,file=<filepath>",
    ),
    (
        "level=TIMESTAMPS triton,file=f rate=0",
        "trace-config | --trace-config rate=0: sample rate must be non-zero | rate=1 traces every request",
    ),
    (
        "mode=opentelemetry level=TENSORS",
        "trace-config | --trace-config level=TENSORS: tensors are not traced in mode opentelemetry | use "
        "level=TIMESTAMPS",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), REFUSED)
def test_what_cannot_be_traced_is_told_with_the_flag_and_the_value(text, error):
    with pytest.raises(ConfigError) as caught:
        read(*text.split())
    assert shown(caught.value) == error


VARIABLES = ["OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"]


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5", "4294967296", "9" * 5000])
@pytest.mark.parametrize("name", VARIABLES)
def test_an_error_of_a_variable_names_the_variable(name, text):
    with pytest.raises(ConfigError) as caught:
        read(environ={name: text})
    assert str(caught.value) == f"environment variable {name} must be 1 to 4294967295, not {text!r:.60}"


def test_variables_of_opentelemetry_stand_where_no_flag_does():
    environ = dict(zip(VARIABLES, ("1", "2", "4294967295"), strict=True))
    assert read(environ=environ).opentelemetry == OpenTelemetrySettings(
        bsp_max_queue_size=1, bsp_schedule_delay=2, bsp_max_export_batch_size=4294967295
    )
    assert read(environ=dict.fromkeys(VARIABLES, "")).opentelemetry == OpenTelemetrySettings()


@pytest.mark.parametrize(("entry", "changed"), [
    ("rate=0", {"rate": 0}),
    ("rate=4294967295", {"rate": 4294967295}),
    ("count=-1", {"count": -1}),
    ("count=0", {"count": 0}),
    ("count=2147483647", {"count": 2147483647}),
    ("triton,log-frequency=0", {"log_frequency": 0}),
    ("triton,log-frequency=4294967295", {"log_frequency": 4294967295}),
])  # fmt: skip
def test_the_ends_of_what_may_be(entry, changed):
    assert read(entry).trigger == TriggerSettings(**changed)


@pytest.mark.parametrize(("text", "url"), [
    ("h", "http://h"),
    ("h:4318/v1/traces", "http://h:4318/v1/traces"),
    ("https://h", "https://h"),
    ("http://[::1]:4318", "http://[::1]:4318"),
    ("http://h:65535", "http://h:65535"),
])  # fmt: skip
def test_where_spans_go(text, url):
    assert read("mode=opentelemetry", f"opentelemetry,url={text}").opentelemetry.url == url


def test_the_last_value_counts_but_levels_add_up():
    settings = read("rate=1", "rate=2", "triton,file=a", "triton,file=b", "level=TENSORS", "level=TENSORS", "level=MIN")
    assert (settings.trigger.rate, settings.file, settings.trigger.levels) == (2, "b", ("TENSORS", "TIMESTAMPS"))


def test_a_new_flag_rules_over_an_old_one():
    assert read("rate=7", trace_rate=5, trace_file="f").trigger.rate == 7


def test_old_flags_that_were_not_given_say_nothing():
    notices = []
    assert read(notices=notices, trace_level=[], trace_rate=None) == read() and not notices


def test_an_error_of_an_old_flag_is_that_of_the_new_one():
    with pytest.raises(ConfigError) as caught:
        read(trace_rate=-1)
    assert shown(caught.value) == "trace-config | --trace-config rate=-1: -1 is out of range [ 0, 4294967295 ]"
