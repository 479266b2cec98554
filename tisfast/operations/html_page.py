"""Pages for people: what is served, and the API in words.  Each stands by itself: no script, no other file.

Layer 4 (operations).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

from tisfast.operations.http_response import Response

HTML: Final = "text/html; charset=utf-8"
HEADERS: Final = (
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Vary", "Accept"),
)
"""The text of models stands in these pages; nothing of it may run."""
STYLE: Final = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3em .8em .3em 0;border-bottom:1px solid "
    "#ddd;vertical-align:top}code,pre{font:14px/1.4 monospace}pre{background:#f4f4f4;padding:.8em;overflow:auto}"
    ".ready{color:#060}.not{color:#a00}h2{margin-top:2em}"
)


def html(title: str, body: str) -> Response:
    """A whole page.  body: HTML; title: text."""
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )
    return Response(200, HTML, text.encode("utf-8", "backslashreplace"), HEADERS)


def model_row(entry: Mapping[str, str]) -> str:
    """The row of one model version.  entry: its line in the repository index."""
    name, version, state = entry["name"], entry.get("version", ""), entry.get("state", "")
    ready = state == "READY"
    path = escape(f"/v2/models/{name}" + (f"/versions/{version}" if version else ""), quote=True)
    links = f'<a href="{path}">metadata</a> <a href="{path}/docs">docs</a> <a href="{path}/stats">statistics</a>'
    return (
        f"<tr><td>{escape(name)}</td><td>{escape(version)}</td>"
        f'<td class="{"ready" if ready else "not"}">{escape(state or "not loaded")}</td>'
        f"<td>{escape(entry.get('reason', ''))}</td><td>{links if ready else ''}</td></tr>"
    )


def front_page(server: Mapping[str, Any], why_not_ready: str, rows: Iterable[str]) -> Response:
    """The page of the server for a browser.  rows: of model_row."""
    table = "".join(rows)
    kind, state = ("not", f"not ready: {escape(why_not_ready)}") if why_not_ready else ("ready", "ready")
    models = (
        f"<table><tr><th>model</th><th>version</th><th>state</th><th>reason</th><th></th></tr>{table}</table>"
        if table
        else "<p>No model is known. Does <code>--model-repository</code> name the folder that holds the folders of "
        "models?</p>"
    )
    body = (
        f'<p>{escape(server["name"])} {escape(server["version"])} is <span class="{kind}">{state}</span>.</p>{models}'
        '<p><a href="/v2/docs">API</a> · <a href="/v2">metadata</a> · metrics are on a port of their own '
        "(<code>--metrics-port</code>, 8002 unless told)</p>"
    )
    return html("tisfast", body)


def document_page(document: Mapping[str, Any]) -> Response:
    """An OpenAPI document in words."""
    info = document["info"]
    tags: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tags.setdefault(operation["tags"][0], []).append(_operation(path, method, operation))
    parts = [f"<h2>{escape(tag)}</h2>{''.join(found)}" for tag, found in tags.items()]
    schemas = "".join(
        f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3><pre>{escape(json.dumps(schema, indent=2))}</pre>'
        for name, schema in document["components"]["schemas"].items()
    )
    intro = (
        f"<p>{escape(info['description'])}. Version {escape(info['version'])}. "
        "As JSON (OpenAPI 3.1): the same address with <code>Accept: application/json</code>.</p>"
    )
    return html(info["title"], f"{intro}{''.join(parts)}<h2>schemas</h2>{schemas}")


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    request = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    answers = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{escape(answer['description'])} {_schema_of(answer)}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    description = f"<p>{escape(operation['description'])}</p>" if "description" in operation else ""
    return (
        f"<h3><code>{escape(method.upper())} {escape(path)}</code></h3><p>{escape(operation['summary'])}</p>"
        f"{description}{_body(path, request)}<table>{answers}</table>"
    )


def _body(path: str, request: Mapping[str, Any]) -> str:
    if not request:
        return ""
    name = request["schema"]["$ref"].rpartition("/")[2]
    said = f'<p>Body: <a href="#{escape(name)}"><code>{escape(name)}</code></a></p>'
    if "example" in request:
        example = json.dumps(request["example"])
        said += f"<pre>curl localhost:8000{escape(path)} -d '{escape(example)}'</pre>"
    return said


def _schema_of(answer: Mapping[str, Any]) -> str:
    reference = answer.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    name = reference.rpartition("/")[2]
    return f'(<a href="#{escape(name)}"><code>{escape(name)}</code></a>)' if name and name != "Anything" else ""
