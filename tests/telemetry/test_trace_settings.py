"""The trace extension's settings: what is in force, for whom, and what is refused."""

from __future__ import annotations

import pytest

from tisfast import limits
from tisfast.config.tracing import OpenTelemetrySettings, TraceSettings, TriggerSettings
from tisfast.errors import BadRequest, Internal, Unavailable, Unsupported
from tisfast.telemetry.trace_settings import LiveTraceSettings as Live

OFF = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "f",
    "trace_mode": "triton",
}


def live(mode="triton", file="f", changed=lambda: None, **trigger):
    return Live(TraceSettings(mode, TriggerSettings(**trigger), file), lambda name: name in ("m", "n"), changed)


def fired(settings, model, times, asked=False):
    return [settings.trigger(model).fires(asked=asked) for _ in range(times)]


def test_values_are_text():
    assert live().values() == live().values("m") == OFF


def test_values_in_mode_opentelemetry():
    otel = OpenTelemetrySettings(url="http://x/y", resource=(("a", "b"),))
    found = Live(TraceSettings("opentelemetry", opentelemetry=otel), lambda _: True, lambda: None).values()
    assert found == {
        "trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "trace_mode": "opentelemetry",
        "url": "http://x/y", "resource": "a=b", "bsp_max_export_batch_size": "512", "bsp_schedule_delay": "5000",
        "bsp_max_queue_size": "2048",
    }  # fmt: skip


def test_models_mirror_what_they_do_not_set():
    settings = live()
    settings.update("m", {"trace_level": ["TIMESTAMPS"]})
    settings.update("", {"trace_rate": "7"})
    assert settings.values("m") == {**OFF, "trace_level": ["TIMESTAMPS"], "trace_rate": "7"}
    assert settings.values("n") == settings.values() == {**OFF, "trace_rate": "7"}


def test_none_takes_a_setting_back():
    settings = live()
    settings.update("m", {"trace_level": ["TIMESTAMPS"], "trace_rate": "2"})
    settings.update("", {"trace_rate": "9"})
    settings.update("m", {"trace_rate": None})
    assert settings.values("m")["trace_rate"] == "9"
    settings.update("", {"trace_rate": None})
    assert settings.values("m")["trace_rate"] == "1000"
    settings.update("m", {"trace_level": None})
    assert not settings.on


def test_every_nth_request_until_the_count_is_used_up():
    settings = live(levels=("TIMESTAMPS",), rate=2, count=2)
    assert fired(settings, "m", 8) == [False, True, False, True, False, False, False, False]
    assert settings.values()["trace_count"] == "0"
    assert not settings.on


def test_a_caller_that_traces_is_followed_whatever_the_rate():
    settings = live("opentelemetry", levels=("TIMESTAMPS",), rate=0)
    assert fired(settings, "m", 2) == [False, False]
    assert fired(settings, "m", 2, asked=True) == [True, True]


def test_counters_of_one_model_survive_changes_of_another():
    settings = live(levels=("TIMESTAMPS",), rate=1)
    settings.update("m", {"trace_count": "3"})
    fired(settings, "m", 2)
    settings.update("n", {"trace_count": "5"})
    assert settings.values("m")["trace_count"] == "1"


def test_changes_are_told():
    told = []
    settings = live(changed=lambda: told.append(1))
    settings.update("", {"trace_rate": "3"})
    with pytest.raises(BadRequest):
        settings.update("", {"trace_rate": "x"})
    assert told == [1]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"trace_level": "TIMESTAMPS"}, Internal, "attempt to access JSON non-array as array"),
        ({"trace_level": [1]}, Internal, "attempt to access JSON non-string as string"),
        ({"trace_level": ["OFF", "TIMESTAMPS"]}, BadRequest, "Expect only one trace level 'OFF' is specified"),
        ({"trace_level": ["BOGUS"]}, BadRequest, "unknown trace level 'BOGUS'"),
        ({"trace_rate": 1}, Internal, "attempt to access JSON non-string as string"),
        ({"trace_rate": "x"}, BadRequest, "Unable to parse 'trace_rate', got: x"),
        ({"trace_rate": "1_000"}, BadRequest, "Unable to parse 'trace_rate', got: 1_000"),
        (
            {"trace_rate": "99999999999"},
            BadRequest,
            r"Unable to parse 'trace_rate', value is out of range \[ 0, 4294967295 \], got: 99999999999",
        ),
        ({"trace_count": "-2"}, BadRequest, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"),
        ({"log_frequency": "x"}, BadRequest, "Unable to parse 'log_frequency', got: x"),
        ({"trace_file": "x"}, Unsupported, "trace file location can not be updated through network protocol"),
        ({"trace_mode": "opentelemetry"}, Unsupported, "trace_mode can not be updated through network protocol"),
        ({"bogus": "1"}, BadRequest, "unknown trace setting 'bogus'"),
        (
            {"trace_level": ["TIMESTAMPS"], "trace_rate": "0"},
            BadRequest,
            "Attempting to set invalid trace setting :sample rate must be non-zero",
        ),
    ],
)
@pytest.mark.parametrize("model", ["", "m"])
def test_what_is_wrong_changes_nothing(model, change, error, text):
    settings = live()
    with pytest.raises(error, match=text):
        settings.update(model, {"log_frequency": "3", **change})
    assert settings.values(model) == OFF


def test_no_level_without_a_file():
    with pytest.raises(BadRequest, match="Attempting to set invalid trace setting :trace file name is not given"):
        live(file="").update("", {"trace_level": ["TIMESTAMPS"]})


def test_no_tensors_in_spans():
    with pytest.raises(BadRequest, match="'TENSORS' is not supported in mode opentelemetry"):
        live("opentelemetry").update("", {"trace_level": ["TENSORS"]})


def test_unknown_models():
    for act in (lambda s: s.values("x"), lambda s: s.update("x", {})):
        with pytest.raises(BadRequest, match="^Request for unknown model : x$"):
            act(live())


def test_models_that_are_gone_make_room_for_others(monkeypatch):
    monkeypatch.setattr(limits, "TRACE_MODELS_MAX", 3)
    known = {"m1", "m2", "m3", "new"}
    settings = Live(TraceSettings("triton", TriggerSettings(), "f"), known.__contains__, lambda: None)
    for name in ("m1", "m2", "m3"):
        settings.update(name, {"trace_rate": "7"})
    with pytest.raises(Unavailable, match="^3 models have trace settings of their own already, as many as may$"):
        settings.update("new", {"trace_rate": "5"})
    known -= {"m1", "m2"}
    settings.update("new", {"trace_rate": "5"})
    known |= {"m1", "m2"}
    assert [settings.values(name)["trace_rate"] for name in ("new", "m1", "m2", "m3")] == ["5", "1000", "1000", "7"]
