"""Server-sent events, cut anywhere."""

from __future__ import annotations

import pytest

from tisfast.bench.event_stream import EVENT_BYTES_MAX, EventStream
from tisfast.errors import BadResponse

TEXT = b": a comment\n\nevent: x\ndata: one\nid: 5\n\ndata:two\ndata: lines\n\n\n\ndata\n\ndata: \xc3\xa4\n\n"
DATA = [b"one", b"two\nlines", b"\xc3\xa4"]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_whole_wherever_they_are_cut(line_end, size):
    text, stream = TEXT.replace(b"\n", line_end), EventStream()
    found = [each for at in range(0, len(text), size) for each in stream.feed(text[at : at + size])]
    assert [each.data for each in [*found, *stream.end()]] == DATA


def test_an_event_is_known_when_its_empty_line_is_there():
    stream = EventStream()
    assert not list(stream.feed(b"data: 1\n"))
    assert [each.data for each in stream.feed(b"\ndata: 2")] == [b"1"]
    assert [each.text for each in stream.end()] == [b"data: 2"]
    assert not list(stream.end())


def test_an_event_has_a_bound():
    stream = EventStream()
    list(stream.feed(b"data: " + b"x" * (EVENT_BYTES_MAX - 6)))
    with pytest.raises(BadResponse, match=f"more than {EVENT_BYTES_MAX} bytes"):
        stream.feed(b"x")
