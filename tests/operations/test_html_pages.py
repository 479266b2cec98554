"""Pages for people: what a browser gets, and what of it may never run."""

from __future__ import annotations

import asyncio
import json
from html.parser import HTMLParser

import pytest

from tests.operations.helpers import Served, registry
from tisfast.operations import openapi
from tisfast.operations.html_page import front_page, model_row
from tisfast.operations.routes import ROUTES, Routes
from tisfast.operations.service import Service
from tisfast.wire import head

VOID = {"meta", "br"}
BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"
SERVER = {"name": "triton", "version": "1.0"}


class Page(HTMLParser):
    """A page as a browser reads it: its text, its links, its elements, all of which must be closed."""

    def __init__(self, response):
        super().__init__()
        self.text, self.links, self.names, self.open = "", [], set(), []
        self.feed(response.body.decode())
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        assert not any(name.startswith("on") or name == "src" for name, _ in attrs)
        self.links += [value for name, value in attrs if name == "href"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def get(path, *served, accept=BROWSER):
    """The answer, however many turns of the loop it takes."""
    routes = Routes(Service(registry(*served), server_id="triton", server_version="9.9"))
    asked = head.parse(f"GET {path} HTTP/1.1\r\nHost: x\r\nACCEPT: {accept}\r\n\r\n".encode())

    async def scenario():
        made = routes.handle(asked, b"")
        return await made if asyncio.isfuture(made) else made

    return asyncio.run(scenario())


def test_the_first_page_names_the_server_and_its_models():
    answer = get("/", Served("one"), Served("two", "3"))
    assert answer.status == 200 and answer.content_type.startswith("text/html")
    page = Page(answer)
    for word in ("triton 9.9 is ready", "one", "two", "READY"):
        assert word in page.text
    assert {"/v2/models/two/versions/3/docs", "/v2/docs", "/v2"} <= set(page.links)
    for link in page.links:
        assert get(link, Served("one"), Served("two", "3")).status == 200


def test_a_server_without_models_says_where_they_should_be():
    assert "--model-repository" in Page(get("/")).text


def test_what_is_not_ready_stands_there_with_its_reason():
    row = model_row({"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "no module 'x'"})
    page = Page(front_page(SERVER, "model 'm' is not ready", [row]))
    assert "not ready: model 'm' is not ready" in page.text and "no module 'x'" in page.text
    assert not any("/v2/models/m" in link for link in page.links)


def test_the_texts_of_models_are_texts():
    hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\ud800"
    answer = front_page(SERVER, hostile, [model_row({"name": hostile, "version": hostile, "reason": hostile})])
    page = Page(answer)
    assert not page.names & {"script", "img"} and "<script>" in page.text
    assert ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'") in answer.headers


@pytest.mark.parametrize("path", ["/v2/docs", "/v2/models/m/docs"])
def test_documents_are_pages_for_browsers_and_json_for_all_others(path):
    answer = get(path, Served())
    page = Page(answer)
    assert not page.names & {"script", "link", "img"}
    assert all(link.startswith("#") for link in page.links)
    assert "POST /v2/models/" in page.text and ("Vary", "Accept") in answer.headers
    for accept in ("*/*", "application/json"):
        whole = get(path, Served(), accept=accept)
        assert json.loads(whole.body)["openapi"] == "3.1.0" and ("Vary", "Accept") in whole.headers


def test_each_operation_lists_its_own_errors():
    paths = openapi.document(openapi.operations(ROUTES), SERVER)["paths"]
    assert set(paths["/v2/health/live"]["get"]["responses"]) == {"200", "400", "403", "405"}
    assert "401" in paths["/v2/repository/models/{model}/load"]["post"]["responses"]
    assert "401" not in paths["/v2/models/{model}/infer"]["post"]["responses"]


def test_datatypes_are_enumerated():
    document = openapi.document(openapi.operations(ROUTES), SERVER)
    tensor = document["components"]["schemas"]["InferRequest"]["properties"]["inputs"]["items"]
    assert {"FP32", "BYTES", "BF16"} <= set(tensor["properties"]["datatype"]["enum"])


def test_a_text_has_an_example_only_where_a_warm_up_sample_shows_it():
    text = {"name": "T", "datatype": "BYTES", "shape": [1]}
    model = {"name": "m", "versions": ["1"], "inputs": [text], "outputs": []}
    warm_up = [{"name": "zeros", "inputs": {"T": {"data_type": "TYPE_STRING", "dims": [1], "zero_data": True}}}]
    for config, shown in (({}, False), ({"model_warmup": warm_up}, True)):
        paths = openapi.model_document(openapi.operations(ROUTES), SERVER, model, config)["paths"]
        content = paths["/v2/models/m/infer"]["post"]["requestBody"]["content"]["application/json"]
        assert ("example" in content) is shown
