"""HTTP/1.1 sessions: what one side writes the other reads, however the bytes are split; what is wrong is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tisfast.errors import BadRequest, BadResponse, TisError
from tisfast.limits import HTTP_HEAD_BYTES_MAX, HTTP_INTERIM_RESPONSES_MAX
from tisfast.wire.client_head import RequestHead, chunk
from tisfast.wire.http1 import Http1Client, Http1Server

GET = RequestHead("GET", "/v2", "h:1")
HEAD = RequestHead("HEAD", "/v2", "h:1")
FRAMING = {
    "host", "content-length", "transfer-encoding", "expect", "inference-header-content-length", "connection", "upgrade",
    "proxy-connection", "content-encoding", "accept-encoding", "accept",
}  # fmt: skip
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,10}", fullmatch=True).filter(lambda name: name.lower() not in FRAMING)
VALUES = st.from_regex(r"([!-~]([ -~]{0,20}[!-~])?)?", fullmatch=True)
BODIES = st.none() | st.binary(max_size=200) | st.lists(st.binary(min_size=1, max_size=60), max_size=5)


def split(data, cuts):
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in zip(at, at[1:], strict=False)]


def read(session, parts):
    """[(head, body)] of all messages; whole ones only."""
    found, body = [], None
    for part in parts:
        for kind, value in session.receive(part):
            if kind == "head":
                head, body = value, b""
            elif kind == "data":
                body += value
            else:
                found.append((head, body))
    return found


def coded(body):
    """A body on the wire, and what it says."""
    if isinstance(body, list):
        return b"".join(map(chunk, body)) + chunk(b""), b"".join(body)
    return body or b"", body or b""


@st.composite
def requests(draw):
    head = RequestHead(
        draw(st.sampled_from(["GET", "POST", "PUT", "DELETE"])),
        draw(st.from_regex(r"/[a-z0-9%./?=&-]{0,20}", fullmatch=True)),
        "h:1",
        draw(st.lists(st.tuples(NAMES, VALUES), max_size=4)),
    )
    body = draw(BODIES)
    text, said = coded(body)
    if body is None:
        return head, head.without_body(), said
    expects = draw(st.booleans())
    if isinstance(body, list):
        return head, head.in_chunks(expect_continue=expects) + text, said
    return head, head.with_body(len(body), draw(st.sampled_from([-1, 0, 7])), expect_continue=expects) + text, said


@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(0, 4000), max_size=12))
def test_a_server_reads_what_a_client_writes_however_it_is_split(sent, cuts):
    got = read(Http1Server(), split(b"".join(text for _, text, _ in sent), cuts))
    assert [body for _, body in got] == [said for _, _, said in sent]
    for (head, text, said), (found, _) in zip(sent, got, strict=True):
        assert found.method == head.method
        assert text.startswith(head.text) and text.startswith(f"{head.method} {found.target} HTTP/1.1\r\n".encode())
        assert found.content_length == (-1 if found.chunked or text == head.without_body() else len(said))


@st.composite
def responses(draw):
    """The request, the answer's bytes, (status, body)."""
    request = draw(st.sampled_from([GET, GET, HEAD]))
    status = draw(st.sampled_from([200, 400, 503, 204, 304]))
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * draw(st.integers(0, 2))
    lines = b"".join(
        b"%b: %b\r\n" % (a.encode(), b.encode()) for a, b in draw(st.lists(st.tuples(NAMES, VALUES), max_size=3))
    )
    text, said = coded(draw(BODIES) or b"")
    bare = request is HEAD or status in (204, 304)
    framing = b"Transfer-Encoding: chunked\r\n" if text != said else b"Content-Length: %d\r\n" % len(text)
    head = b"HTTP/1.1 %d Any Reason\r\n%b%b\r\n" % (status, lines, framing)
    return request, interim + head + (b"" if bare else text), (status, b"" if bare else said)


@given(st.lists(responses(), min_size=1, max_size=4), st.lists(st.integers(0, 4000), max_size=12))
def test_a_client_reads_answers_however_they_are_split(answers, cuts):
    client = Http1Client()
    for request, _, _ in answers:
        client.sent(request)
    got = read(client, split(b"".join(text for _, text, _ in answers), cuts))
    assert [(head.status, body) for head, body in got] == [expected for _, _, expected in answers]
    assert client.reusable and client.outstanding == 0 and client.closed() is False


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=5), st.booleans())
def test_a_body_without_length_ends_with_the_connection(body, cuts, old):
    client = Http1Client()
    client.sent(GET)
    data = b"HTTP/1.%d 200 OK\r\n\r\n" % (not old) + body
    events = [event for part in split(data, cuts) for event in client.receive(part)]
    assert b"".join(value for kind, value in events if kind == "data") == body
    assert events[0][0] == "head" and ("end", None) not in events and not client.reusable
    assert client.closed() is True


PIECES = [
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 500 x\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n", b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"\n", b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", b" ", b"\xff", b"HTTP/2",
    b"HTTP/1.1 204 No\r\n", b"Content-Length: 4\r\n", b"ffffffffffffffff\r\n", b"x: y\r\n", b"\r\n", b"\x16\x03",
]  # fmt: skip


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(PIECES) | st.binary(max_size=6), max_size=10), st.lists(st.integers(0, 200), max_size=4)
)
def test_rubbish_is_refused_once_and_nothing_else_happens(pieces, cuts):
    for session in (Http1Client(), Http1Server()):
        with contextlib.suppress(TisError):
            if isinstance(session, Http1Client):
                session.sent(GET)
                session.sent(HEAD)
            for part in split(b"".join(pieces), cuts):
                session.receive(part)
            continue
        assert session.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") == []  # nothing is looked at any more


@pytest.mark.parametrize(
    ("answer", "culprit"),
    [
        (b"HTTP/2 200\r\n", "does not speak HTTP/1.1"),
        (b"\x16\x03\x01", "does not speak HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * HTTP_HEAD_BYTES_MAX, "exceeds 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "malformed|different"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "malformed|both"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "chunked is"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n", "not a number from 0"),
        (b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: -1\r\n\r\n", "no number of bytes"),
        (b"HTTP/1.1 999 Odd\r\n\r\n", "none from 100 to 599"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk size expected"),
        (b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "another protocol"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * (HTTP_INTERIM_RESPONSES_MAX + 1), "interim"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK", "nobody asked for"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\nHTTP/1.1 200 OK", "nobody asked for"),
    ],
)
def test_an_answer_that_cannot_be_one_is_refused_with_the_culprit(answer, culprit):
    client = Http1Client()
    client.sent(GET)
    with pytest.raises(BadResponse, match=culprit):
        client.receive(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n5\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nabcdefghijk",
    ],
)
def test_a_body_is_bounded_whatever_its_length_is_told_by(answer):
    client = Http1Client(body_max=10)
    client.sent(GET)
    with pytest.raises(BadResponse, match="11 bytes and more, 10 is the limit"):
        client.receive(answer)
    larger = Http1Client(body_max=11)
    larger.sent(GET)
    assert larger.receive(answer)


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (b"", "before a response"),
        (b"HTTP/1.1 200", "in the middle of a response"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "before a response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "2 bytes before the end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "before the last chunk"),
    ],
)
def test_a_server_that_closes_early_is_told_of(answer, missing):
    client = Http1Client()
    client.sent(GET)
    client.receive(answer)
    with pytest.raises(BadResponse, match=missing):
        client.closed()


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_the_server_says_whether_the_connection_goes_on(head, reusable):
    client = Http1Client()
    client.sent(GET)
    assert [kind for kind, _ in client.receive(head)] == ["head", "end"]
    assert client.reusable is reusable


def test_an_answer_may_come_before_the_client_is_told_to_continue():
    client = Http1Client()
    client.sent(RequestHead("POST", "/", "h"))
    (_, interim), *_ = client.receive(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert interim.status == 100 and client.outstanding == 1
    (_, refused), *_ = client.receive(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    assert (refused.status, refused.reason, client.outstanding) == (413, "Too Large", 0)


def test_the_headers_of_an_answer_can_be_asked_for():
    client = Http1Client()
    client.sent(GET)
    (_, head), *_ = client.receive(
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Type: Application/JSON; x=y\r\ncontent-encoding: GZIP\r\n"
        b"Inference-Header-Content-Length: 7\r\nRetry-After:  3 \r\n\r\n"
    )
    assert (head.content_type, head.content_encoding, head.inference_header_length) == ("application/json", "gzip", 7)
    assert (head.first("retry-after"), head.first("x-none")) == ("3", None)
    assert (b"Retry-After", b"3") in head.headers()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("G ET", "/", "h"), "method"),
        (("GET", "/a b", "h"), "target"),
        (("GET", "/\r\nx: y", "h"), "target"),
        (("GET", "", "h"), "target"),
        (("GET", "/", "h\r\n"), "host"),
        (("GET", "/", "h", [("a b", "c")]), "header"),
        (("GET", "/", "h", [("a", "c\r\nd: e")]), "header"),
        (("GET", "/", "h", [("a", "\0")]), "header"),
        (("GET", "/", "h", [("a", "\u20ac")]), "header"),
        (("GET", "/", "h", [("Content-Length", "3")]), "cannot be set"),
        (("GET", "/", "h", [("a", "b" * HTTP_HEAD_BYTES_MAX)]), "is the limit"),
    ],
)
def test_nothing_that_a_caller_sets_begins_another_line(arguments, what):
    with pytest.raises(BadRequest, match=what):
        RequestHead(*arguments)


@settings(max_examples=50)
@given(st.lists(requests(), min_size=1, max_size=3), st.lists(st.integers(0, 4000), max_size=8))
def test_another_library_reads_what_a_client_writes(sent, cuts):
    h11 = pytest.importorskip("h11")
    server, got, body = h11.Connection(h11.SERVER), [], b""
    for part in split(b"".join(text for _, text, _ in sent), cuts):
        server.receive_data(part)
        while (event := server.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                got.append(body)
                body = b""
                server.send(h11.Response(status_code=204, headers=[]))
                server.send(h11.EndOfMessage())
                server.start_next_cycle()
    assert got == [said for _, _, said in sent]


ANSWERS = st.tuples(st.sampled_from([200, 404, 204]), st.binary(max_size=80), st.booleans())


@settings(max_examples=50)
@given(st.lists(ANSWERS, min_size=1, max_size=4), st.lists(st.integers(0, 4000), max_size=8))
def test_a_client_reads_what_another_library_writes(answers, cuts):
    h11 = pytest.importorskip("h11")
    server, client, written = h11.Connection(h11.SERVER), Http1Client(), b""
    for status, said, sized in answers:
        client.sent(GET)
        server.receive_data(GET.without_body())
        while server.next_event() is not h11.NEED_DATA and server.their_state is h11.SEND_BODY:
            pass
        body = b"" if status == 204 else said
        headers = [("Content-Length", str(len(body)))] if sized and status != 204 else []
        written += server.send(h11.Response(status_code=status, headers=headers))
        written += server.send(h11.Data(body)) + server.send(h11.EndOfMessage())
        while server.their_state is not h11.DONE:
            server.next_event()
        server.start_next_cycle()
    got = read(client, split(written, cuts))
    assert [(head.status, body) for head, body in got] == [(s, b"" if s == 204 else b) for s, b, _ in answers]
