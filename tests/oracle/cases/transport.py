"""What HTTP itself allows: compression, chunks, keep-alive, lying lengths."""

# ruff: noqa: E501  (a table: one case, one line)
from __future__ import annotations

import gzip
import json
import zlib

from tests.oracle.cases.binary_requests import FOUR, HEAD
from tests.oracle.cases.json_requests import BOTH
from tests.oracle.cases.table import Case, Headers, get, infer, post, post_binary, raw
from tests.oracle.exchange import Request

BODY = json.dumps({"inputs": BOTH}).encode()
LONG = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [500], "data": [1.0] * 500}]}).encode()


def _packed(name: str, body: bytes, encoding: str, more: Headers = ()) -> Case:
    return infer(name, "1.26", "add_sub", body, [("Content-Encoding", encoding), *more])


def _accepting(name: str, accept: str, body: bytes = LONG, model: str = "identity_fp32") -> Case:
    return infer(name, "1.27", model, body, [("Accept-Encoding", accept)])


def _chunks(body: bytes, size: int) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def _chunked(name: str, data: bytes, headers: Headers = (), rows: str = "1.29") -> Case:
    return Case(name, rows, (post("add_sub", data, [("Transfer-Encoding", "chunked"), *headers]),))


def _line(method: str, target: str, *headers: str, version: str = "HTTP/1.1") -> bytes:
    return "\r\n".join([f"{method} {target} {version}", *headers, "", ""]).encode()


POST = "/v2/models/add_sub/infer"
LIVE = _line("GET", "/v2/health/live", "Host: x")
GOOD = _line("POST", POST, "Host: x", f"Content-Length: {len(BODY)}") + BODY

COMPRESSION = [
    _packed("gzip body", gzip.compress(BODY, mtime=0), "gzip"),
    _packed("deflate body", zlib.compress(BODY), "deflate"),
    _packed("identity body", BODY, "identity"),
    _packed("empty encoding", BODY, ""),
    _packed("unknown encoding", BODY, "br"),
    _packed("two encodings", gzip.compress(BODY, mtime=0), "gzip, deflate"),
    _packed("GZIP in capitals", gzip.compress(BODY, mtime=0), "GZIP"),
    _packed("gzip body that is none", BODY, "gzip"),
    _packed("gzip body cut off", gzip.compress(BODY, mtime=0)[:-9], "gzip"),
    _packed("gzip body of two members", gzip.compress(BODY[:10], mtime=0) + gzip.compress(BODY[10:], mtime=0), "gzip"),
    _packed("gzip body with rest", gzip.compress(BODY, mtime=0) + b"rest", "gzip"),
    _packed("deflate body without header", zlib.compress(BODY)[2:-4], "deflate"),
    _packed("gzip of no bytes", b"", "gzip"),
    _packed("deflate body called gzip", zlib.compress(BODY), "gzip"),
    Case("gzip of binary", "1.26 2.01", (post("add_sub", gzip.compress(json.dumps(HEAD).encode() + FOUR * 2, mtime=0),
        [("Content-Encoding", "gzip"), ("Inference-Header-Content-Length", str(len(json.dumps(HEAD))))]),)),
    _accepting("accept gzip", "gzip"),
    _accepting("accept deflate", "deflate"),
    _accepting("accept both", "gzip, deflate"),
    _accepting("accept both, other order", "deflate, gzip"),
    _accepting("accept by weight", "gzip;q=0.5, deflate;q=0.8"),
    _accepting("accept by weight, unknown first", "br;q=1.0, gzip;q=0.8"),
    _accepting("accept gzip at weight 0", "gzip;q=0"),
    _accepting("accept anything", "*"),
    _accepting("accept identity", "identity"),
    _accepting("accept nothing known", "br"),
    _accepting("accept bad weight", "gzip;q=x"),
    _accepting("accept gzip, short answer", "gzip", BODY, "add_sub"),
    _accepting("accept gzip, error", "gzip", b"{"),
    Case("accept gzip, binary", "1.27", (post_binary("add_sub", {**HEAD, "parameters": {"binary_data_output": True}}, FOUR * 2, [("Accept-Encoding", "gzip")]),)),
    get("accept gzip of metadata", "1.27", "/v2", [("Accept-Encoding", "gzip")]),
]  # fmt: skip

CHUNKS = [
    _chunked("chunked", _chunks(BODY, 40)),
    _chunked("chunked in single bytes", _chunks(BODY, 1)),
    _chunked("one chunk", _chunks(BODY, 10**6)),
    _chunked("chunk extension", b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)),
    _chunked("chunk trailer", b"%x\r\n%s\r\n0\r\nX: y\r\n\r\n" % (len(BODY), BODY)),
    _chunked("chunk size in capitals", b"%X\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)),
    _chunked("chunk size not a number", b"zz\r\n%s\r\n0\r\n\r\n" % BODY),
    _chunked("chunk size too great to be", b"ffffffffffffffffff\r\n%s\r\n0\r\n\r\n" % BODY),
    _chunked("no chunks", b"0\r\n\r\n"),
    _chunked("gzip in chunks", _chunks(gzip.compress(BODY, mtime=0), 30), [("Content-Encoding", "gzip")], "1.26 1.29"),
    _chunked("binary in chunks", _chunks(json.dumps(HEAD).encode() + FOUR * 2, 25), [("Inference-Header-Content-Length", str(len(json.dumps(HEAD))))], "1.29 2.01"),
    raw("chunks cut off", "1.29", _line("POST", POST, "Host: x", "Transfer-Encoding: chunked") + _chunks(BODY, 40)[:-5], half_close=True),
]  # fmt: skip

CONNECTIONS = [
    Case("keep-alive", "1.34", (post("add_sub", BODY), Request("GET", "/v2/health/live"), post("add_sub", BODY))),
    Case("keep-alive after an error", "1.34", (post("add_sub", b"{"), post("add_sub", BODY), post("nobody", BODY), Request("GET", "/v2"))),
    Case("keep-alive after a bad encoding", "1.34 1.26", (post("add_sub", BODY, [("Content-Encoding", "br")]), post("add_sub", BODY))),
    Case("connection close", "1.34", (post("add_sub", BODY, [("Connection", "close")]),)),
    Case("authorization is let through", "1.40", (post("add_sub", BODY, [("Authorization", "Basic eDp5")]),)),
    Case("expect 100", "1.34", (post("add_sub", BODY, [("Expect", "100-continue")]),)),
    Case("unknown headers", "1.39", (post("add_sub", BODY, [("X-Any", "1"), ("X-Any", "2")]),)),
    Case("content type of text", "1.39", (post("add_sub", BODY, [("Content-Type", "text/plain")]),)),
    Case("a body on GET", "1.34", (Request("GET", "/v2/health/live", (("Content-Length", "3"),), b"abc"), Request("GET", "/v2"))),
    Case("pipelined", "1.34", (post("add_sub", BODY), post("nobody", BODY), Request("GET", "/v2/health/live"), post("add_sub", BODY)), pipelined=True),
    raw("HTTP/1.0", "1.34", _line("GET", "/v2/health/live", version="HTTP/1.0")),
    raw("HTTP/1.0 metadata", "1.34", _line("GET", "/v2", version="HTTP/1.0")),
    raw("HTTP/1.0 keep-alive", "1.34", _line("GET", "/v2", "Connection: keep-alive", version="HTTP/1.0")),
    raw("HTTP/1.0 infer", "1.34", _line("POST", POST, f"Content-Length: {len(BODY)}", version="HTTP/1.0") + BODY),
    raw("no host", "1.34", _line("GET", "/v2/health/live")),
    raw("two hosts", "1.34", _line("GET", "/v2/health/live", "Host: x", "Host: y")),
    raw("absolute target without path", "1.34", _line("GET", "http://localhost?/v2/health/live", "Host: localhost")),
    raw("absolute target", "1.34", _line("GET", "http://localhost/v2/health/live", "Host: localhost")),
    raw("bare line feeds", "1.34", b"GET /v2/health/live HTTP/1.1\nHost: x\n\n"),
    raw("header in small letters", "2.01", _line("POST", POST, "host: x", f"content-length: {len(BODY)}") + BODY),
    raw("HTTP/2 preface", "1.34", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    raw("garbage", "1.34", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"),
    raw("a header without colon", "1.34", _line("GET", "/v2/health/live", "Host: x", "nonsense")),
    raw("a header with a space in its name", "1.34", _line("GET", "/v2/health/live", "Host: x", "a b: c")),
    raw("a folded header", "1.34", _line("GET", "/v2/health/live", "Host: x", "A: b", " c")),
    raw("target with a zero byte", "1.34", b"GET /v2\x00 HTTP/1.1\r\nHost: x\r\n\r\n"),
    raw("version of text", "1.34", b"GET /v2 HTTP/x.y\r\nHost: x\r\n\r\n"),
    raw("no version", "1.34", b"GET /v2/health/live\r\n\r\n"),
    raw("a header of 100 KB", "1.34", _line("GET", "/v2/health/live", "Host: x", "A: " + "b" * 100_000)),
    raw("headers of 200 KB", "1.34", _line("GET", "/v2/health/live", "Host: x", *(f"A{i}: " + "b" * 2000 for i in range(100)))),
    raw("a target of 100 KB", "1.34", _line("GET", "/v2/" + "a" * 100_000, "Host: x")),
    raw("content length too short", "1.34", _line("POST", POST, "Host: x", f"Content-Length: {len(BODY) - 5}") + BODY, method="POST"),
    raw("content length too great, then end", "1.34", _line("POST", POST, "Host: x", f"Content-Length: {len(BODY) + 5}") + BODY, half_close=True, method="POST"),
    raw("content length negative", "1.34", _line("POST", POST, "Host: x", "Content-Length: -1") + BODY, method="POST"),
    raw("content length text", "1.34", _line("POST", POST, "Host: x", "Content-Length: x") + BODY, method="POST"),
    raw("content length twice, equal", "1.34", _line("POST", POST, "Host: x", *[f"Content-Length: {len(BODY)}"] * 2) + BODY, method="POST"),
    raw("content length twice, different", "1.34", _line("POST", POST, "Host: x", f"Content-Length: {len(BODY)}", "Content-Length: 5") + BODY, method="POST"),
    raw("content length and chunks", "1.34", _line("POST", POST, "Host: x", f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked") + _chunks(BODY, 50), method="POST"),
    raw("no length at all", "1.34", _line("POST", POST, "Host: x") , method="POST"),
    raw("half a head, then end", "1.34", b"GET /v2/hea", half_close=True),
    raw("head and end", "1.34", LIVE, half_close=True),
    raw("empty line first", "1.34", b"\r\n" + LIVE),
]  # fmt: skip

CASES: list[Case] = [*COMPRESSION, *CHUNKS, *CONNECTIONS]
