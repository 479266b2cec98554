"""What a server's session makes of the bytes of a connection: heads, bodies and ends, one after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.errors import BadRequest
from tisfast.limits import HTTP_HEAD_BYTES_MAX
from tisfast.wire.http1 import Http1Client, Http1Server, Http1Session

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n"
CHUNKED = b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
END = ("end", None)


def said(events):
    """Heads by their path, neighbouring pieces of a body as one."""
    found = []
    for kind, value in events:
        if kind == "data" and found and found[-1][0] == "data":
            found[-1] = ("data", found[-1][1] + value)
        else:
            found.append((kind, value.path if kind == "head" else value))
    return found


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"", []),
        (b"GE", []),
        (b"\r\n\n\r", []),
        (GET[:-1], []),
        (GET, [("head", "/a"), END]),
        (b"\r\n\r\n" + GET, [("head", "/a"), END]),
        (b"\n" + GET, [("head", "/a"), END]),
        (GET + GET, [("head", "/a"), END] * 2),
        (GET + b"\r\n" + GET, [("head", "/a"), END] * 2),
        (POST, [("head", "/b")]),
        (POST + b"a", [("head", "/b"), ("data", b"a")]),
        (POST + b"abc", [("head", "/b"), ("data", b"abc"), END]),
        (POST + b"abcG", [("head", "/b"), ("data", b"abc"), END]),
        (POST + b"abc" + GET, [("head", "/b"), ("data", b"abc"), END, ("head", "/a"), END]),
        (POST + b"\r\n\r" + POST + b"GET",
         [("head", "/b"), ("data", b"\r\n\r"), END, ("head", "/b"), ("data", b"GET"), END]),
        (POST.replace(b"3", b"0") + GET, [("head", "/b"), END, ("head", "/a"), END]),
        (CHUNKED, [("head", "/c")]),
        (CHUNKED + b"3\r\nabc", [("head", "/c"), ("data", b"abc")]),
        (CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", [("head", "/c"), ("data", b"abcde"), END]),
        (CHUNKED + b"0\r\n\r\n" + GET, [("head", "/c"), END, ("head", "/a"), END]),
        (CHUNKED + b"1\r\nx\r\n0\r\nX-T: 1\r\n\r\n" + POST + b"abc",
         [("head", "/c"), ("data", b"x"), END, ("head", "/b"), ("data", b"abc"), END]),
    ],
)  # fmt: skip
def test_bytes_become_events(data, events):
    assert said(Http1Server().receive(data)) == events


WHOLE = GET + POST + b"abc" + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n" + b"\r\n" + POST + b"xyz" + GET


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20))
def test_and_the_same_ones_however_they_are_split(cuts):
    at = sorted({0, len(WHOLE), *cuts})
    session = Http1Server()
    events = [event for a, b in zip(at, at[1:], strict=False) for event in session.receive(WHOLE[a:b])]
    assert said(events) == said(Http1Server().receive(WHOLE))
    assert [value for kind, value in said(events) if kind == "data"] == [b"abc", b"hello", b"xyz"]


def test_a_head_that_comes_again_is_parsed_once():
    session = Http1Server()
    (_, first), _, (_, second), _, (_, other), _ = session.receive(GET + GET + POST.replace(b"3", b"0"))
    assert first is second and session.head is other is not first
    (_, again), _ = session.receive(GET)
    assert again is not first and again.path == "/a"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x16\x03\x01",
         "this port speaks plain HTTP, the client began a TLS handshake; use http:// instead of https://"),
        (b"hello\r\n", "malformed HTTP request: it starts with byte 0x68 instead of a method"),
        (b" GET", "malformed HTTP request: it starts with byte 0x20 instead of a method"),
        (b"GET / HTTP/1.1\nHost: x\n", "malformed HTTP request head: lines must end with CR LF"),
        (b"G" * (HTTP_HEAD_BYTES_MAX + 1), f"HTTP request head exceeds {HTTP_HEAD_BYTES_MAX} bytes"),
        (GET[:-2] + b"X: " + b"y" * HTTP_HEAD_BYTES_MAX + b"\r\n\r\n",
         f"HTTP request head has {len(GET) + HTTP_HEAD_BYTES_MAX + 5} bytes, {HTTP_HEAD_BYTES_MAX} is the limit"),
        (b"GET / HTTP/2.0\r\n\r\n", "HTTP/2.0 is not served on this port, HTTP/1.0 and HTTP/1.1 are"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "HTTP request head has 2 Host headers, one is allowed"),
        (CHUNKED.replace(b"chunked", b"gzip, chunked"),
         "Transfer-Encoding [b'gzip, chunked'] is not supported, chunked is"),
        (POST.replace(b"3", b"3\r\ncontent-length: 03"), None),
        (POST.replace(b"3", b"-3"), None),
        (CHUNKED + b"x\r\n", "chunk size expected, found byte 0x78"),
        (CHUNKED + b"1\r\nab", "byte 0x0d expected in chunked framing, found 0x62"),
        (CHUNKED + b"1\nb", "chunk size expected, found byte 0x0a"),
        (CHUNKED + b"1;a\nb", "bare line feed in chunked framing"),
        (CHUNKED + b"1" * 16, "chunk size has more than 15 hex digits"),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_with_its_reason_and_ends_the_session(data, text):
    for start in (b"", GET, POST + b"abc"):
        session = Http1Server()
        with pytest.raises(BadRequest) as caught:
            session.receive(start + data)
        assert caught.value.message == text or (text is None and "Content-Length" in caught.value.message)
        assert session.receive(GET) == session.receive(b"") == []


@pytest.mark.parametrize("kind", [Http1Server, Http1Client])
def test_both_sides_are_one_session(kind):
    assert isinstance(kind(), Http1Session) and kind().head is None


def test_a_session_of_neither_side_reads_nothing():
    with pytest.raises(NotImplementedError):
        Http1Session().receive(GET)
