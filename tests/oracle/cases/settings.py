"""Log and trace settings.  What a case changes, it takes back."""

from __future__ import annotations

import json

from tests.oracle.cases.table import Case, call, get
from tests.oracle.exchange import Request

LOG, TRACE, MODEL_TRACE = "/v2/logging", "/v2/trace/setting", "/v2/models/add_sub/trace/setting"
LOG_DEFAULTS = {
    "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default",
}  # fmt: skip
TRACE_DEFAULTS = {"trace_level": None, "trace_rate": None, "trace_count": None, "log_frequency": None}


def _post(target: str, body: object) -> Request:
    return Request("POST", target, (), body if isinstance(body, bytes) else json.dumps(body).encode())


def _log(name: str, rows: str, *bodies: object) -> Case:
    """Post these, look, and take them back."""
    posts = (_post(LOG, body) for body in bodies)
    return Case(f"log: {name}", rows, (*posts, Request("GET", LOG), _post(LOG, LOG_DEFAULTS)))


def _trace(name: str, rows: str, *bodies: object) -> list[Case]:
    """The same for trace settings, global and of a model."""
    return [
        Case(
            f"trace of {what}: {name}",
            rows,
            (
                *(_post(target, body) for body in bodies),
                Request("GET", TRACE),
                Request("GET", MODEL_TRACE),
                _post(target, TRACE_DEFAULTS),
            ),
        )
        for what, target in (("all", TRACE), ("a model", MODEL_TRACE))
    ]


CASES: list[Case] = [
    get("log settings", "5.01", LOG),
    get("log settings with slash", "1.01", f"{LOG}/"),
    call("put to log settings", "1.02", "PUT", LOG, b"{}"),
    call("delete of log settings", "1.02", "DELETE", LOG),
    _log("nothing", "5.02", {}),
    _log("null", "5.02", {"log_info": None, "log_file": None}),
    _log("everything", "5.02", {
        "log_verbose_level": 1, "log_info": True, "log_warning": False, "log_error": False, "log_format": "ISO8601",
    }),
    _log("a text for a switch", "5.04", {"log_info": "yes"}),
    _log("a number for a switch", "5.04", {"log_warning": 1}),
    _log("a negative level", "5.04", {"log_verbose_level": -1}),
    _log("a textual level", "5.04", {"log_verbose_level": "1"}),
    _log("a fractional level", "5.04", {"log_verbose_level": 1.5}),
    _log("a level of 33 bits", "5.04", {"log_verbose_level": 5_000_000_000}),
    _log("an unknown format", "5.04", {"log_format": "x"}),
    _log("a number for a format", "5.04", {"log_format": 1}),
    _log("a file", "5.03", {"log_file": "x"}),
    _log("a number for a file", "5.03", {"log_file": 1}),
    _log("an unknown setting", "5.02", {"bogus": 1}),
    _log("an array", "5.02", []),
    _log("no body", "5.02", b""),
    _log("no JSON", "5.02", b"x"),
    _log("half an object", "5.02", b"{"),
    get("trace settings", "12.01", TRACE),
    get("trace settings of a model", "12.01", MODEL_TRACE),
    get("trace settings of an unknown model", "12.04", "/v2/models/nobody/trace/setting"),
    call("posted trace settings of an unknown model", "12.04", "POST", "/v2/models/nobody/trace/setting", b"{}"),
    call("a broken body for an unknown model's traces", "12.04", "POST", "/v2/models/nobody/trace/setting", b"{"),
    call("put to trace settings", "1.02", "PUT", TRACE, b"{}"),
    get("trace without setting", "1.02", "/v2/trace"),
    *_trace("nothing", "12.02", {}),
    *_trace("an array", "12.02", []),
    *_trace("no body", "12.02", b""),
    *_trace("no JSON", "12.02", b"x"),
    *_trace("a text for levels", "12.02", {"trace_level": "TIMESTAMPS"}),
    *_trace("a number for a level", "12.02", {"trace_level": [1]}),
    *_trace("a level without a file", "12.02 12.05", {"trace_level": ["TIMESTAMPS"]}),
    *_trace("levels without a file", "12.02 12.05", {"trace_level": ["TENSORS", "TIMESTAMPS"]}),
    *_trace("off and on", "12.05", {"trace_level": ["OFF", "TIMESTAMPS"]}),
    *_trace("on and off", "12.05", {"trace_level": ["TIMESTAMPS", "OFF"]}),
    *_trace("off", "12.05", {"trace_level": ["OFF"]}),
    *_trace("no level", "12.05", {"trace_level": []}),
    *_trace("an unknown level", "12.05", {"trace_level": ["BOGUS"]}),
    *_trace("a rate", "12.06", {"trace_rate": "10"}),
    *_trace("a rate of 0", "12.06", {"trace_rate": "0"}),
    *_trace("a number for a rate", "12.02", {"trace_rate": 10}),
    *_trace("a word for a rate", "12.02", {"trace_rate": "x"}),
    *_trace("a negative rate", "12.02", {"trace_rate": "-1"}),
    *_trace("a huge rate", "12.02", {"trace_rate": "99999999999999"}),
    *_trace("a rate in an array", "12.02", {"trace_rate": ["5"]}),
    *_trace("a rate taken back", "12.02", {"trace_rate": "10"}, {"trace_rate": None}),
    *_trace("a count", "12.06", {"trace_count": "5"}),
    *_trace("a word for a count", "12.02", {"trace_count": "x"}),
    *_trace("a count of -2", "12.02", {"trace_count": "-2"}),
    *_trace("a log frequency", "12.06", {"log_frequency": "5"}),
    *_trace("a word for a log frequency", "12.02", {"log_frequency": "x"}),
    *_trace("a file", "12.02", {"trace_file": "x"}),
    *_trace("a file taken back", "12.02", {"trace_file": None}),
    *_trace("the mode that is", "12.02", {"trace_mode": "triton"}),
    *_trace("another mode", "12.02", {"trace_mode": "opentelemetry"}),
    *_trace("an unknown setting", "12.02", {"bogus": "1"}),
    *_trace("one good and one bad", "12.02", {"trace_rate": "33", "trace_count": "x"}),
    Case(
        "trace: a model's own and what it mirrors",
        "12.07",
        (
            _post(MODEL_TRACE, {"trace_rate": "3"}),
            _post(TRACE, {"trace_rate": "5", "trace_count": "9"}),
            Request("GET", MODEL_TRACE),
            _post(MODEL_TRACE, {"trace_rate": None}),
            _post(TRACE, TRACE_DEFAULTS),
            Request("GET", MODEL_TRACE),
        ),
    ),
]  # fmt: skip
