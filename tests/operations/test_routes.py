"""The KServe routes but for inference: which exist, what they say, and how errors look."""

from __future__ import annotations

import json

import pytest

from tests.operations.helpers import Served, ask, registry
from tisfast.operations.http_response import error_response
from tisfast.operations.log_settings import UnknownLogFormat
from tisfast.operations.routes import ROUTES, Routes
from tisfast.operations.service import EXTENSIONS, Service
from tisfast.types import STATUS_CODES, Status


def routes(*served, **options):
    found = registry(*(served or (Served(),)))
    return Routes(Service(found, server_id="triton", server_version="9.9", **options)), found


def get(path, *served, method="GET", body=b""):
    return routes(*served)[0].handle(ask(method, path), body)


def value(response):
    assert (response.status, response.content_type) == (200, "application/json")
    return json.loads(response.body)


def error(response):
    assert response.content_type == "application/json"
    message = json.loads(response.body)
    assert list(message) == ["error"]
    return response.status, message["error"]


def test_server_metadata():
    assert value(get("/v2")) == {"name": "triton", "version": "9.9", "extensions": list(EXTENSIONS)}


@pytest.mark.parametrize("path", ["/v2/models/m/ready", "/v2/models/m/versions/1/ready"])
def test_readiness_of_a_model_is_an_empty_200(path):
    response = get(path)
    assert (response.status, response.content_type, response.body) == (200, "text/plain", b"")


@pytest.mark.parametrize("what", ["live", "ready"])
def test_health_of_the_server_has_the_protocols_body(what):
    response = get(f"/v2/health/{what}")
    assert (response.status, response.content_type, value(response)) == (200, "application/json", {what: True})


def test_health_follows_the_registry():
    handler, found = routes()
    found.set_stopping()
    assert handler.handle(ask("GET", "/v2/health/ready"), b"").status == 400
    assert handler.handle(ask("GET", "/v2/health/live"), b"").status == 200
    found.set_live(False)
    assert handler.handle(ask("GET", "/v2/health/live"), b"") == (400, "text/plain", b"", ())


def test_model_metadata():
    shapes = {"max_batch": [[-1, -1, 3], [-1, 1], [-1, 4]], "plain": [[-1, 3], [1], [4]]}
    for batch, (first, second, third) in ((8, shapes["max_batch"]), (0, shapes["plain"])):
        assert value(get("/v2/models/m", Served(max_batch=batch))) == {
            "name": "m",
            "versions": ["1"],
            "platform": "python",
            "inputs": [
                {"name": "I", "datatype": "FP32", "shape": first},
                {"name": "S", "datatype": "BYTES", "shape": second},
            ],
            "outputs": [{"name": "O", "datatype": "INT32", "shape": third}],
        }


def test_versions_and_names_in_paths():
    served = Served(version="2"), Served(version="10"), Served("a b")
    assert value(get("/v2/models/m", *served))["versions"] == ["2", "10"]
    assert value(get("/v2/models/m/versions/02", *served))["versions"] == ["2"]
    assert value(get("/v2/models/a%20b?x=1", *served))["name"] == "a b"
    assert error(get("/v2/models/m/versions/3", *served)) == (
        404,
        "Request for unknown model: 'm' version 3 is not found",
    )
    status, text = error(get("/v2/models/m/versions/99999999999999999999", *served))
    assert (status, "should be an integral value > 0" in text) == (400, True)


def test_unknown_models_start_with_tritons_words():
    for path in ("/v2/models/x", "/v2/models/x/config", "/v2/models/x/ready"):
        assert error(get(path))[1] == "Request for unknown model: 'x' is not found"


def test_a_model_whose_instances_are_down_is_not_ready():
    served = Served()
    served.link.die()
    served.runtime.set_state(False, "instance m_0_0 was killed")
    status, text = error(get("/v2/models/m/ready", served))
    assert status == 400
    assert text.startswith("Model version not ready")
    assert "instance m_0_0 was killed" in text


def test_the_config_is_the_normalised_one():
    config = {"name": "m", "max_batch_size": 0, "parameters": {"big": 2**63 - 1}}
    assert value(get("/v2/models/m/config", Served(config=config))) == config


def test_statistics_of_one_and_of_all():
    served = Served(), Served(version="2"), Served("n")
    assert [s["version"] for s in value(get("/v2/models/m/stats", *served))["model_stats"]] == ["1", "2"]
    assert [s["version"] for s in value(get("/v2/models/m/versions/2/stats", *served))["model_stats"]] == ["2"]
    assert [s["name"] for s in value(get("/v2/models/stats", *served))["model_stats"]] == ["m", "m", "n"]
    assert error(get("/v2/models/x/stats")) == (400, "requested model 'x' is not available")
    assert "requested model version is not available for model 'm'" in error(get("/v2/models/m/versions/9/stats"))[1]


def test_the_repository_index():
    handler, found = routes()
    found.declare("bad", "1", "UNAVAILABLE", "no model.py")
    found.declare("sleeping", "", "")

    def index(body=b"", path="/v2/repository/index"):
        return handler.handle(ask("POST", path), body)

    everything = [
        {"name": "bad", "version": "1", "state": "UNAVAILABLE", "reason": "no model.py"},
        {"name": "m", "version": "1", "state": "READY"},
        {"name": "sleeping"},
    ]
    for body in (b"", b"{}", b"[]", b'{"ready":false}'):
        assert value(index(body)) == everything
    assert value(index(path="/v2/repository/mine/index")) == everything
    assert value(index(b'{"ready":true}')) == [everything[1]]
    assert error(index(b'{"ready":1}')) == (400, "Invalid value for 'ready': expected a boolean (got 1)")
    assert error(index(b"{"))[0] == 500
    status, text = error(index(b'{"ready":' + b"[" * 250000 + b"]" * 250000 + b"}"))
    assert (status, "nesting depth" in text) == (400, True)


@pytest.mark.parametrize(
    "path",
    [
        "/v2/",
        "/v2x",
        "/v2/models",
        "/v2/models/",
        "/v2/models/m/",
        "/v2/models/m/foo",
        "/v2/models/m/versions",
        "/v2/models/m/versions/x",
        "/v2/health",
        "/v2/health/ready/",
        "/metrics",
        "//v2",
        "/v2/models/m/versions/1/trace/setting",
        "*",
    ],
)
def test_unknown_paths(path):
    assert error(get(path)) == (404, "Not Found")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2"),
        ("PUT", "/v2/health/ready"),
        ("DELETE", "/v2/models/m"),
        ("POST", "/v2/models/stats"),
        ("GET", "/v2/models/m/infer"),
        ("PUT", "/v2/models/m/infer"),
        ("GET", "/v2/repository/index"),
        ("GET", "/v2/repository/models/m/load"),
        ("DELETE", "/v2/repository/r/models/m/unload"),
        ("GET", "/v2/models/m/generate"),
        ("DELETE", "/v2/logging"),
    ],
)
def test_known_paths_with_the_wrong_verb(method, path):
    assert error(get(path, method=method)) == (405, "Method Not Allowed")


def test_head_requests_get_no_body():
    assert get("/v2/health/ready", method="HEAD") == (405, "application/json", b"", (("Allow", "GET"),))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.pattern.pattern)
def test_every_route_has_a_category_and_a_summary(route):
    assert route.category and route.operation.summary


@pytest.mark.parametrize("status", [status for status in Status if status])
def test_each_status_has_its_http_code(status):
    assert error(error_response(status, "é")) == (STATUS_CODES[status].http, "é")


def test_unsupported_compression_names_what_is_supported():
    response = error_response(Status.UNSUPPORTED, "Unsupported compression type")
    assert (response.status, response.headers) == (501, (("Accept-Encoding", "gzip, deflate"),))


def test_a_message_that_no_json_can_carry_is_answered_all_the_same():
    assert error(error_response(Status.INTERNAL, "half \ud800"))[1] == "half \\ud800"


# ---- settings


class Settings:
    """Log or trace settings that take what they get; `model` is told by trace settings only."""

    def __init__(self):
        self.updates = []

    def values(self, *model):
        return {"seen": [*model], "updates": self.updates}

    def update(self, *change):
        if change[-1].get("log_format") == "x":
            raise UnknownLogFormat("no such format")
        self.updates.append(list(change))


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("path", "seen"),
    [("/v2/logging", []), ("/v2/trace/setting", [""]), ("/v2/models/a%20b/trace/setting", ["a b"])],
)
def test_settings_are_asked_for_and_changed(method, path, seen):
    handler, _ = routes(log_settings=Settings(), trace_settings=Settings())
    found = value(handler.handle(ask(method, path), b'{"a": 1}'))
    assert found == {"seen": seen, "updates": [] if method == "GET" else [[*seen, {"a": 1}]]}


def test_other_verbs_on_settings():
    assert error(get("/v2/logging", method="PUT")) == (405, "Method Not Allowed")


def test_an_unknown_log_format_is_503_here():
    handler, _ = routes(log_settings=Settings())
    assert error(handler.handle(ask("POST", "/v2/logging"), b'{"log_format": "x"}')) == (503, "no such format")


def test_a_settings_body_that_is_no_json_is_500():
    handler, _ = routes(log_settings=Settings())
    status, text = error(handler.handle(ask("POST", "/v2/logging"), b"{"))
    assert status == 500
    assert text.startswith("failed to parse the request JSON buffer: ")
