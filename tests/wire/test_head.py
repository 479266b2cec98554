"""HTTP request heads: what becomes which value, and what is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tisfast.errors import BadRequest
from tisfast.wire import head


def parse(line=b"GET /v2 HTTP/1.1", *headers):
    return head.parse(b"\r\n".join([line, *headers, b"", b""]))


def test_an_inference_of_tritonclient():
    got = parse(
        b"POST /v2/models/add%20sub/versions/007/infer?x=1 HTTP/1.1",
        b"Host: h",
        b"Content-Length: 332",
        b"Inference-Header-Content-Length: 300",
        b"Accept-Encoding: gzip, deflate",
        b"Content-Encoding: gzip",
    )
    assert (got.method, got.path, got.name, got.version, got.is_infer) == (
        "POST",
        "/v2/models/add%20sub/versions/007/infer",
        "add sub",
        "7",
        True,
    )
    assert (got.content_length, got.inference_header_length) == (332, 300)
    assert (got.accept_encoding, got.content_encoding) == ("gzip", "gzip")
    assert (got.keep_alive, got.chunked, got.expect_continue, got.http10) == (True, False, False, False)
    assert got.headers()[0] == (b"Host", b"h")


def test_what_was_not_sent():
    got = parse()
    assert (got.content_length, got.inference_header_length, got.content_encoding, got.accept_encoding) == (
        -1,
        -1,
        "",
        "",
    )


@pytest.mark.parametrize(
    ("line", "infer"),
    [
        (b"POST /v2/models/m/infer HTTP/1.1", ("m", "")),
        (b"POST http://host:8000/v2/models/m/infer HTTP/1.1", ("m", "")),
        (b"POST http://host?/v2/models/m/infer HTTP/1.1", None),
        (b"POST /v2/models/m/versions/3/infer HTTP/1.1", ("m", "3")),
        (b"GET /v2/models/m/infer HTTP/1.1", None),
        (b"POST /v2/models/m/infer/ HTTP/1.1", None),
        (b"POST /v2/models//infer HTTP/1.1", None),
        (b"POST /v2/models/m/versions/x/infer HTTP/1.1", None),
        (b"POST /v2/models/m/versions/infer HTTP/1.1", None),
        (b"POST /v2/models/m/x/3/infer HTTP/1.1", None),
        (b"POST /v2/models/infer HTTP/1.1", None),
    ],
)
def test_which_request_is_an_inference(line, infer):
    got = parse(line)
    assert ((got.name, got.version) if got.is_infer else None) == infer


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://host", "/"),
        ("http://host/v2?x=/v3", "/v2"),
        ("http://host?/v2/health/live", "/"),
        ("/v2?http://host/v3", "/v2"),
    ],
)
def test_the_path_of_a_target(target, path):
    assert parse(f"GET {target} HTTP/1.1".encode()).path == path


@pytest.mark.parametrize(
    ("line", "headers", "keep_alive"),
    [
        (b"GET / HTTP/1.1", (), True),
        (b"GET / HTTP/1.1", (b"Connection: close",), False),
        (b"GET / HTTP/1.1", (b"Connection: Keep-Alive, CLOSE",), False),
        (b"GET / HTTP/1.0", (), False),
        (b"GET / HTTP/1.0", (b"Connection: Keep-Alive",), True),
    ],
)
def test_keep_alive(line, headers, keep_alive):
    assert parse(line, *headers).keep_alive is keep_alive


def test_an_upgrade_is_not_taken():
    assert parse(b"GET /v2 HTTP/1.1", b"Connection: Upgrade", b"Upgrade: h2c").path == "/v2"


def test_expect_and_chunked():
    got = parse(b"POST / HTTP/1.1", b"Expect: 100-Continue", b"Transfer-Encoding: Chunked")
    assert (got.expect_continue, got.chunked, got.content_length) == (True, True, -1)
    assert not parse(b"POST / HTTP/1.0", b"Expect: 100-continue").expect_continue


INFER = b"POST /v2/models/m/infer HTTP/1.1"


@pytest.mark.parametrize(
    ("line", "headers", "match"),
    [
        (b"GET / HTTP/1.1", (b"Content-Length: 5", b"Content-Length: 6"), "Content-Length"),
        (b"GET / HTTP/1.1", (b"Content-Length: 5", b"Transfer-Encoding: chunked"), "Transfer-Encoding"),
        (b"GET / HTTP/1.1", (b"Transfer-Encoding: gzip, chunked",), "not supported, chunked is"),
        (b"GET / HTTP/1.1", (b"A: b", b" folded"), "malformed HTTP request head"),
        (b"GET / HTTP/1.1", (b"A : b",), "malformed HTTP request head"),
        (b"GET / HTTP/1.1", (b"A: \0",), "malformed HTTP request head"),
        (b"GET / HTTP/1.1", (b"Content-Length: -5",), "Content-Length"),
        (
            b"GET / HTTP/1.1",
            (b"Content-Length: 99999999999999",),
            "Content-Length b'99999999999999' is not a number from 0",
        ),
        (b"GET / HTTP/1.1", (b"Host: a", b"hOST: a"), "2 Host headers, one is allowed"),
        (b"GET / HTTP/2.0", (), "HTTP/2.0 is not served on this port"),
        (b"FOO / HTTP/1.1", (), "Invalid method"),
        (b"GET /\xff HTTP/1.1", (), "malformed HTTP request head"),
        (b"\x16\x03\x01\x02", (), "the client began a TLS handshake"),
        (b"hello", (), "starts with byte 0x68 instead of a method"),
        (
            INFER,
            (b"Inference-Header-Content-Length: abc",),
            "Unable to parse Inference-Header-Content-Length, got: abc",
        ),
        (
            INFER,
            (b"Inference-Header-Content-Length: 85x",),
            "Unable to parse Inference-Header-Content-Length, got: 85x",
        ),
        (
            INFER,
            (b"Content-Length: 9", b"Inference-Header-Content-Length: -1"),
            "inference header size should be in range (0, 9), got: -1",
        ),
        (INFER, (b"Inference-Header-Content-Length: 99999999999",), "value is out of range"),
        (
            INFER,
            (b"Inference-Header-Content-Length: 7", b"inference-header-content-length: 8"),
            "2 different inference-header-content-length headers",
        ),
        (
            b"POST /v2/models/m/versions/99999999999999999999/infer HTTP/1.1",
            (),
            "version should be an integral value > 0",
        ),
        (b"GET / HTTP/1.1", (b"A: " + b"x" * 70000,), "65536 is the limit"),
    ],
)
def test_refused_heads(line, headers, match):
    with pytest.raises(BadRequest) as caught:
        parse(line, *headers)
    assert match in str(caught.value)


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\n", b"\x16\x03", b"get / HTTP/1.1\r\n", b"\0"])
def test_what_cannot_become_a_head_is_refused_before_it_is_complete(start):
    with pytest.raises(BadRequest):
        head.find(start)


@pytest.mark.parametrize("start", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r"])
def test_the_start_of_a_head_is_not(start):
    assert head.find(start) == 0


TOKEN = st.text("abcdefghijklmnopqrstuvwxyzABC-", min_size=1, max_size=12)
VALUE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30).map(str.strip)


@given(st.sampled_from(["GET", "POST", "PUT"]), TOKEN, st.dictionaries(TOKEN.map("X-{}".format), VALUE, max_size=8))
def test_heads_come_back_as_they_were_sent(method, path, headers):
    text = f"{method} /{path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
    got = head.parse(text.encode())
    assert (got.method, got.path) == (method, f"/{path}")
    assert got.headers() == [(k.encode(), v.encode()) for k, v in headers.items()]


@given(st.binary(max_size=200))
@example(b"GET / HTTP/1.1\r\n\r\n")
def test_any_bytes_are_a_head_or_a_refusal(data):
    for text in (data, b"POST /v2/models/m/infer HTTP/1.1\r\n" + data + b"\r\n\r\n"):
        with contextlib.suppress(BadRequest):
            head.parse(text)


@given(st.integers(1, 60), st.binary(max_size=20))
def test_the_end_of_a_head_is_found_whatever_the_splits(cut, behind):
    text = b"GET / HTTP/1.1\r\nHost: somewhere\r\nX: y\r\n\r\n"
    cut = min(cut, len(text) - 1)
    assert head.find(text[:cut]) == 0
    assert head.find(text + behind, cut) == len(text)


def test_a_head_without_end_is_refused_at_the_limit():
    start = b"GET / HTTP/1.1\r\nX: "
    assert head.find(start + b"y" * (65536 - len(start))) == 0
    with pytest.raises(BadRequest, match="head exceeds 65536 bytes"):
        head.find(start + b"y" * (65537 - len(start)))
