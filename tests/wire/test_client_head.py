"""Heads that a client writes, line by line, and what it reads in the heads of responses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.errors import BadRequest, BadResponse
from tisfast.limits import HTTP_BODY_BYTES_MAX, HTTP_HEAD_BYTES_MAX
from tisfast.wire import client_head, head
from tisfast.wire.client_head import RequestHead, chunk

START = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: h:8000\r\n"


def post(*headers):
    return RequestHead("POST", "/v2/models/m/infer", "h:8000", list(headers))


# ---- requests


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (lambda h: h.without_body(), b""),
        (lambda h: h.with_body(0), b"Content-Length: 0\r\n"),
        (lambda h: h.with_body(1234567890123), b"Content-Length: 1234567890123\r\n"),
        (lambda h: h.with_body(9, 0), b"Inference-Header-Content-Length: 0\r\nContent-Length: 9\r\n"),
        (lambda h: h.with_body(9, 7), b"Inference-Header-Content-Length: 7\r\nContent-Length: 9\r\n"),
        (lambda h: h.with_body(9, expect_continue=True), b"Expect: 100-continue\r\nContent-Length: 9\r\n"),
        (
            lambda h: h.with_body(9, 7, expect_continue=True),
            b"Inference-Header-Content-Length: 7\r\nExpect: 100-continue\r\nContent-Length: 9\r\n",
        ),
        (lambda h: h.in_chunks(), b"Transfer-Encoding: chunked\r\n"),
        (lambda h: h.in_chunks(expect_continue=True), b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"),
    ],
)
def test_a_request_says_how_long_its_body_is(make, lines):
    assert make(post()) == START + lines + b"\r\n"
    assert make(post(("X-User", "a b"), ("accept", ""))) == START + b"X-User: a b\r\naccept: \r\n" + lines + b"\r\n"


def test_a_head_may_be_written_again_and_again():
    request = post()
    first = request.with_body(7)
    assert request.with_body(100, 50) != first == request.with_body(7)
    assert (request.method, request.text, request.is_head) == ("POST", START, False)
    assert RequestHead("HEAD", "/", "h").is_head


def test_a_body_has_no_less_than_nothing():
    with pytest.raises(ValueError, match="a body of -1 bytes"):
        post().with_body(-1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", "/", "h"), "'' is no HTTP method"),
        (("G(T", "/", "h"), "'G(T' is no HTTP method"),
        (("GET\n", "/", "h"), "'GET\\n' is no HTTP method"),
        (("GET", "/\N{SNOWMAN}", "h"), "'/\N{SNOWMAN}' is no HTTP request target"),
        (("GET", "/ HTTP/1.1\r\nx:", "h"), "'/ HTTP/1.1\\r\\nx:' is no HTTP request target"),
        (("GET", "/", ""), "'' is no HTTP host"),
        (("GET", "/", "h h"), "'h h' is no HTTP host"),
        (("GET", "/", "h", [("", "x")]), "'': 'x' is no HTTP header"),
        (("GET", "/", "h", [("a:", "x")]), "'a:': 'x' is no HTTP header"),
        (("GET", "/", "h", [("a", "\n")]), "'a': '\\n' is no HTTP header"),
        (("GET", "/", "h", [("a", "x\x7f")]), "'a': 'x\\x7f' is no HTTP header"),
        (("GET", "/", "h", [("Host", "x")]), "the header Host is written with the body, and cannot be set"),
        (("GET", "/", "h", [("expect", "x")]), "the header expect is written with the body, and cannot be set"),
        (
            ("GET", "/", "h", [("TRANSFER-ENCODING", "chunked")]),
            "the header TRANSFER-ENCODING is written with the body, and cannot be set",
        ),
        (
            ("GET", "/", "h", [("inference-header-content-length", "3")]),
            "the header inference-header-content-length is written with the body, and cannot be set",
        ),
    ],
)
def test_what_is_no_head_is_refused(arguments, message):
    with pytest.raises(BadRequest) as caught:
        RequestHead(*arguments)
    assert caught.value.message == message


def test_a_head_is_bounded():
    room = HTTP_HEAD_BYTES_MAX - len(post(("a", "")).text)
    assert len(post(("a", "x" * room)).text) == HTTP_HEAD_BYTES_MAX
    with pytest.raises(BadRequest) as caught:
        post(("a", "x" * (room + 1)))
    most = HTTP_HEAD_BYTES_MAX
    assert caught.value.message == f"HTTP request head has {most + 1} bytes, {most} is the limit"


TOKENS = st.from_regex(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,9}", fullmatch=True).map("x-".__add__)
VALUES = st.from_regex(r"([!-~\x80-\xff]([\t -~\x80-\xff]{0,9}[!-~\x80-\xff])?)?", fullmatch=True)


@given(st.lists(st.tuples(TOKENS, VALUES), max_size=6), st.integers(0, HTTP_BODY_BYTES_MAX), st.integers(-1, 1 << 30))
def test_the_server_reads_the_head_that_was_written(headers, nbytes, json_bytes):
    found = head.parse(post(*headers).with_body(nbytes, json_bytes))
    assert (found.method, found.path, found.is_infer, found.name) == ("POST", "/v2/models/m/infer", True, "m")
    assert (found.content_length, found.inference_header_length, found.chunked) == (nbytes, json_bytes, False)
    said = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in found.headers()]
    assert said[1 : 1 + len(headers)] == headers


@given(st.binary(max_size=300))
def test_a_chunk_is_its_length_and_its_bytes(data):
    size, _, rest = chunk(data).partition(b"\r\n")
    assert int(size, 16) == len(data) and rest == data + b"\r\n"


# ---- responses


def read(*lines, status=b"200 OK", version=b"HTTP/1.1"):
    return client_head.parse(b"\r\n".join([version + b" " + status, *lines, b"", b""]))


def test_what_a_response_does_not_say():
    found = read()
    assert (found.status, found.reason, found.http10) == (200, "OK", False)
    assert (found.keep_alive, found.chunked) == (True, False)
    assert (found.content_length, found.inference_header_length) == (-1, -1)
    assert (found.content_type, found.content_encoding, found.headers()) == ("", "", [])


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        (b"Content-Length: 0", "content_length", 0),
        (b"content-length:12 ", "content_length", 12),
        (b"Content-Length: %d" % HTTP_BODY_BYTES_MAX, "content_length", HTTP_BODY_BYTES_MAX),
        (b"Inference-Header-Content-Length: 0", "inference_header_length", 0),
        (b"Inference-Header-Content-Length:  99\t", "inference_header_length", 99),
        (b"Content-Type: Application/JSON", "content_type", "application/json"),
        (b"Content-Type:  text/event-stream ; charset=utf-8", "content_type", "text/event-stream"),
        (b"Content-Encoding: GZip", "content_encoding", "gzip"),
        (b"Content-Encoding: Identity", "content_encoding", ""),
        (b"Connection: close", "keep_alive", False),
        (b"Connection: Upgrade, Close", "keep_alive", False),
        (b"Transfer-Encoding: CHUNKED", "chunked", True),
    ],
)
def test_what_a_header_of_a_response_means(line, field, value):
    assert getattr(read(line), field) == value


@pytest.mark.parametrize(
    ("status", "number", "reason"),
    [
        (b"200 OK", 200, "OK"), (b"404 Not Found", 404, "Not Found"), (b"503 ", 503, ""),
        (b"100 Continue", 100, "Continue"), (b"599 X", 599, "X"), (b"299 a b\tc", 299, "a b\tc"),
    ],
)  # fmt: skip
def test_status_and_reason(status, number, reason):
    found = read(status=status)
    assert (found.status, found.reason) == (number, reason)


@pytest.mark.parametrize(
    ("lines", "keep"), [((), False), ((b"Connection: keep-alive",), True), ((b"Connection: x",), False)]
)
def test_an_old_server_closes_unless_it_says_otherwise(lines, keep):
    found = read(*lines, version=b"HTTP/1.0")
    assert found.http10 and found.keep_alive is keep


def test_headers_by_name_in_any_case():
    found = read(b"X-A:  one ", b"x-a: two", b"X-B: \xe9")
    assert (found.first("x-a"), found.first("X-B"), found.first("x-c")) == ("one", "\xe9", None)
    assert found.headers() == [(b"X-A", b"one"), (b"x-a", b"two"), (b"X-B", b"\xe9")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b"Content-Length: 1", b"Transfer-Encoding: chunked"], None),
        ([b"Content-Length: 5", b"Content-Length: 6"], None),
        ([b"Content-Length: -1"], None),
        ([b"Content-Length: 1.5"], None),
        ([b"Content-Length: %d" % (HTTP_BODY_BYTES_MAX + 1)],
         f"Content-Length b'{HTTP_BODY_BYTES_MAX + 1}' is not a number from 0 to {HTTP_BODY_BYTES_MAX}"),
        ([b"Transfer-Encoding: gzip"], "Transfer-Encoding [b'gzip'] is not supported, chunked is"),
        ([b"Transfer-Encoding: chunked, gzip"], "Transfer-Encoding [b'chunked, gzip'] is not supported, chunked is"),
        ([b"Inference-Header-Content-Length: x"], "Inference-Header-Content-Length b'x' is no number of bytes"),
        ([b"Inference-Header-Content-Length: "], "Inference-Header-Content-Length b'' is no number of bytes"),
        ([b"Inference-Header-Content-Length: +1"], "Inference-Header-Content-Length b'+1' is no number of bytes"),
        ([b"Inference-Header-Content-Length: " + b"1" * 19],
         f"Inference-Header-Content-Length b'{'1' * 19}' is no number of bytes"),
        ([b"Inference-Header-Content-Length: 1", b"inference-header-content-length: 2"],
         "HTTP response head has 2 different inference-header-content-length headers: [b'1', b'2']"),
        ([b"A : b"], None),
        ([b"A: b", b" c"], None),
        ([b"A: \0"], None),
        ([b"nonsense"], None),
    ],
)  # fmt: skip
def test_a_head_that_could_be_read_in_two_ways_is_refused(lines, message):
    with pytest.raises(BadResponse) as caught:
        read(*lines)
    if message is None:
        assert caught.value.message.startswith(("malformed HTTP response head: ", "HTTP response head has both "))
    else:
        assert caught.value.message == message


@pytest.mark.parametrize("status", [b"099 X", b"600 X", b"999 X", b"20 OK", b"2000 OK", b"abc OK", b"-20 X"])
def test_a_status_that_is_none_is_refused(status):
    with pytest.raises(BadResponse, match="malformed HTTP response head|which is none from 100 to 599"):
        read(status=status)


def test_a_head_of_a_response_is_bounded():
    line = b"X: " + b"y" * HTTP_HEAD_BYTES_MAX
    whole = len(b"HTTP/1.1 200 OK\r\n" + line + b"\r\n\r\n")
    with pytest.raises(BadResponse) as caught:
        read(line)
    assert caught.value.message == f"HTTP response head has {whole} bytes, {HTTP_HEAD_BYTES_MAX} is the limit"
