"""Health, metadata, configuration, unknown routes and verbs: rows 1.01 to 1.12."""

# ruff: noqa: E501  (a table: one case, one line)
from __future__ import annotations

from tests.oracle.cases.table import Case, call, get

_MODELS = (
    "add_sub", "identity_fp32", "batched", "completed", "facts", "grid", "latest", "matrix", "misbehave", "partners", "reshaped",
    "sleeper", "types", "versions", "word",
)  # fmt: skip

CASES: list[Case] = [
    get("live", "1.05", "/v2/health/live"),
    get("ready", "1.06", "/v2/health/ready"),
    get("live with query", "1.05", "/v2/health/live?x=1"),
    get("live with slash", "1.01", "/v2/health/live/"),
    get("server metadata", "1.09", "/v2"),
    get("server metadata with slash", "1.09", "/v2/"),
    *(get(f"metadata of {model}", "1.10", f"/v2/models/{model}") for model in _MODELS),
    get("metadata of a version", "1.10", "/v2/models/versions/versions/1"),
    get("metadata with slash", "1.01", "/v2/models/add_sub/"),
    get("metadata of an unloaded version", "1.08", "/v2/models/latest/versions/1"),
    get("metadata of an unknown version", "1.08", "/v2/models/add_sub/versions/99"),
    get("metadata of an unknown model", "1.08", "/v2/models/nobody"),
    get("metadata of version 0", "1.12", "/v2/models/add_sub/versions/0"),
    get("metadata of a negative version", "1.12", "/v2/models/add_sub/versions/-1"),
    get("metadata of a textual version", "1.12", "/v2/models/add_sub/versions/one"),
    get("metadata of a huge version", "1.12", "/v2/models/add_sub/versions/99999999999999999999"),
    get("metadata of a quoted name", "1.39", "/v2/models/add%5Fsub"),
    get("metadata of an empty name", "1.01", "/v2/models//"),
    *(get(f"config of {model}", "1.11", f"/v2/models/{model}/config") for model in _MODELS),
    get("config of a version", "1.11", "/v2/models/versions/versions/1/config"),
    get("config of an unknown version", "1.11", "/v2/models/versions/versions/2/config"),
    get("config of an unknown model", "1.11", "/v2/models/nobody/config"),
    get("model ready", "1.07", "/v2/models/add_sub/ready"),
    get("model version ready", "1.07", "/v2/models/versions/versions/3/ready"),
    get("unloaded version ready", "1.07", "/v2/models/latest/versions/1/ready"),
    get("unknown version ready", "1.07", "/v2/models/add_sub/versions/2/ready"),
    get("unknown model ready", "1.07", "/v2/models/nobody/ready"),
    get("unknown model stats", "11.07", "/v2/models/nobody/stats"),
    get("unknown version stats", "11.07", "/v2/models/add_sub/versions/9/stats"),
    get("unknown route", "1.02", "/v2/nothing"),
    get("root", "1.02", "/"),
    get("version 1 of the protocol", "1.02", "/v1/models/add_sub:predict"),
    get("unknown route under a model", "1.02", "/v2/models/add_sub/nothing"),
    get("unknown route under health", "1.02", "/v2/health/nothing"),
    get("trace setting with a version", "1.01", "/v2/models/add_sub/versions/1/trace/setting"),
    get("doubled slash", "1.02", "/v2//health/live"),
    call("post to live", "1.02", "POST", "/v2/health/live"),
    call("post to metadata", "1.02", "POST", "/v2"),
    call("post to model metadata", "1.02", "POST", "/v2/models/add_sub"),
    call("post to config", "1.02", "POST", "/v2/models/add_sub/config"),
    call("post to stats", "1.02", "POST", "/v2/models/add_sub/stats"),
    call("post to model ready", "1.02", "POST", "/v2/models/add_sub/ready"),
    call("get of infer", "1.02", "GET", "/v2/models/add_sub/infer"),
    call("put to infer", "1.02", "PUT", "/v2/models/add_sub/infer", b"{}"),
    call("delete of a model", "1.02", "DELETE", "/v2/models/add_sub"),
    call("head of live", "1.02", "HEAD", "/v2/health/live"),
    call("head of metadata", "1.02", "HEAD", "/v2"),
    call("options of metadata", "1.02", "OPTIONS", "/v2"),
    call("patch of metadata", "1.02", "PATCH", "/v2", b"{}"),
    call("put to an unknown route", "1.02", "PUT", "/v2/nothing", b"{}"),
    call("an unknown verb", "1.02", "BREW", "/v2"),
    get("broken: live", "1.05", "/v2/health/live", place="broken"),
    get("broken: ready", "1.06 26.02", "/v2/health/ready", place="broken"),
    get("broken: sound model ready", "1.07", "/v2/models/sound/ready", place="broken"),
    *(
        get(
            f"broken: {model} {what or 'metadata'}",
            "1.07 1.08",
            f"/v2/models/{model}{what and '/' + what}",
            place="broken",
        )
        for model in ("in_initialize", "without_class", "without_version", "in_config")
        for what in ("", "ready", "config", "stats")
    ),
    get("broken: a version of the failed model", "1.08", "/v2/models/in_initialize/versions/1/ready", place="broken"),
    Case("post to metrics", "1.37", call("", "", "POST", "/metrics").requests, "metrics"),
    get("unknown route of metrics", "1.37", "/nothing", place="metrics"),
]
