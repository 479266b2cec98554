"""What inputs cost: a search for such as cost much, and the ten worst of each kind that were found.

Nothing here is timed.  Memory is what tracemalloc counts.  Work is instructions of the processor, as valgrind counts
them: it sees our compiled modules, regular expressions, zlib, nghttp2 and orjson alike, gives the same number on a busy
machine, and needs no counter of the hardware, which lent machines lack (perf_event_open fails there).  It is some 50
times slower than the processor, so all inputs share one process, and the search in CI maximises memory alone; the one
for instructions is `python -m tests.wire.cost_search`.

Bounds are for each byte that comes, some three times what was measured: other compilers and Pythons need other numbers.
What takes the square of its length takes 48,000 and more.
"""

from __future__ import annotations

from collections import Counter as Counts

import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

from tests.wire.cost_kinds import (
    EMPTY_GZIP,
    FREE_BYTES,
    FREE_STEPS,
    GROUPS,
    KINDS,
    LONG_FIELD,
    LONG_GZIP,
    ZEROS,
    ZEROS_GZIP,
    cost,
    made,
)
from tests.wire.cost_steps import counted, why_not


def check(kind, data):
    taken = cost(kind, data)
    assert taken <= FREE_BYTES + KINDS[kind].bytes * len(data), f"{taken} bytes of memory for {len(data)}"
    return taken


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.searched])
def test_no_input_costs_much_memory(kind):
    pieces = KINDS[kind].pieces
    few = st.lists(st.sampled_from(pieces), max_size=4)
    slow = kind in ("load", "configuration", "load message")  # much of them is Python, which is slow while traced

    @settings(max_examples=15 if slow else 60)
    @given(few, st.lists(st.sampled_from(pieces), min_size=1, max_size=4), few)
    def search(start, unit, end):
        data = made(*map(b"".join, (start, unit, end)))
        target(check(kind, data) / len(data), label="bytes of memory for each byte")

    search()


# Kind, start, what is repeated, end.
WORST = [
    ("inference", b"[", b"{},", b""),
    ("inference", b"NaN", b'\\"', b""),
    ("inference", b"[NaN,", b"[", b""),
    ("inference", b"NaN", b"\\\xc3\xa9NaN", b'"binary_data_size":-\xf0\x9f\x98\x80'),
    ("inference", b'["\xf0\x9f\x98\x80",', b"Inf,", b""),
    ("inference", b'{"inputs":[', b"[1],", b""),
    ("inference with a head", b"\xf0\x9f\x98\x80", b"Inf", b""),
    ("strings", b"\xf0\x9f\x98\x80", b"InfInfInf", b""),
    ("generate", b'{"a":1},[][null{', b"\xc3\xa9-:--", b'"data":[]""Inf\\'),
    ("text", b"[", b"Inf,", b""),
    ("text", b"", b" ", b'Inf\\ud800\xf0\x9f\x98\x80e\\""binary_data_size":\\u0000'),
    ("text", b"NaN", b'""', b""),
    ("text", b"[NaN,1.", b"9", b""),
    ("text", b'{"binary_data_size":', b'[[["a"],', b""),
    ("chunks", b"", b"1\r\nx\r\n", b"1\n"),
    ("head", b"", b"Host: x\r\nAccept-Encoding: gzip;q=0.5,;/,,", b"qa:\r\nAccept-Encoding: gzip;q=0.5,"),
    ("head", b"", b"Accept-Encoding: gzip;q=0.5,=\xff,\xff=,\xff\xff,", b"a:\r\na:\r\n"),
    ("head", b"", b"Accept-Encoding: gzip;q=0.5,=\xff,q\t\xff\xff,\xff\xff,", b"a:\r\na:\r\n"),
    ("head", b"", b"Host: x\r\nAccept-Encoding: gzip;q=0.5,,", b"q\xffa:\r\nAccept-Encoding: gzip;q=0.5,\t"),
    ("head", b"Accept-Encoding: ", b"gzip;q=0.5,", b""),
    ("head", b"", b"a: b\r\n", b""),
    ("head", b"", b"a:\r\n", b"\r/;"),
    ("head", b"a:", b" ", b""),
    ("head", b"", b"Host: x\r\n", b""),
    ("head", b"", b"Transfer-Encoding: chunked\r\n", b""),
    ("fields", LONG_FIELD, b"\xbe", b""),
    ("fields", b"", b"~\x01b\x0f/\x01b", b""),
    ("fields", b"", b"@\x01a\x01b~\x01b", b" "),
    ("fields", b"", b"@\x81\x1f\x81\x8f", b"~\x01b\x00\x01a\x84\xff\xff\xff\xfe\x84"),
    ("fields", b"@\x01a\x01b@\x01a\x01b", b"~\x01b", b"\x7f\x80\x82@\x81\x1f\x81\x8f"),
    ("fields", b"", b"~\x01b\x84", b"?\xe1\x1f"),
    ("fields", b"", b"~\x01b\x84\x00\x01A\x00~\x01b", b"?\xe1\x1f"),
    ("fields", b"", b"@\x01a\x01b", b"\x00\x00\x00"),
    ("fields", b"", b"@\x81\x1f\x81\x8f~\x01b", b"~\x01b\x00\x01a\x84\xff\xff\xff\xfe\x84"),
    ("fields", b"", b"\x20", b""),
    ("message", b"*\x00", b'"\x00"\x00', b""),
    ("message", b"*\x80\x80\x002\x00", b'"\x00"\x00\x08\x01"\x00"\x00', b"\n\x01m:\x01x*\x00"),
    ("message", b"*\x80\x80\x00", b'"\x00"\x00\n\x01m', b"*\x00\n\x01m"),
    ("message", b":\x00", b'\x12\x00"\x00', b""),
    ("message", b"", b"*\x04\x1a\x02\x01\x01", b"*\x06*\x042\x02\x00\x00"),
    ("message", b"", b"*\x00", b""),
    ("message", b"", b"\n\x01m", b""),
    ("message", b"", b'"\x07\n\x01a\x12\x02\x08\x01', b""),
    ("message", b"", b"2\x00", b""),
    ("message", b"", b"\x0b", b""),
    ("unload", b"", b"InfInfInf", b"\xf0\x9f\x98\x80"),
    ("load", b"", b'["', b""),
    ("load", b'"', b"\\", b'"'),
    ("configuration", b"{", b"'\"", b""),
    ("configuration", b"", b'""', b""),
    ("configuration", b"{", b'"\\"', b""),
    ("configuration", b"{", b'"x":1,', b'"x":1}'),
    ("load message", b"\x1a\x0c\n\x06config\x12\x02\x1a\x00", b"\x1a\x00\x1a\x00\x1a\x02\x12\x00", b""),
    ("load message", b"", b"\x1a\x05\n\x01b\x12\x00\x1a\x00", b'"\x00\x1a'),
    ("settings message", b"", b'\n\x00"\x00\x1a\x00', b""),
    ("gzip", b"", EMPTY_GZIP, b"\x00\x01\x00\xfe\xffx\x01"),
    ("gzip", b"", ZEROS_GZIP, b"\x00\x01\x00\xfe\xffx\x01"),
    ("gzip", b"", LONG_GZIP, b""),
    ("gzip", ZEROS_GZIP * 95, EMPTY_GZIP, b""),
    ("gzip", EMPTY_GZIP[:3] + b"\x08" + EMPTY_GZIP[4:10], b"name", b""),
    ("deflate", b"x\x01", ZEROS, b""),
    ("deflate", b"x\x01", b"\x00\x00\x00\xff\xff", b""),
    ("deflate", b"x\x01", b"\x00\x01\x00\xfe\xffx" + ZEROS, b""),
    ("deflate", b"x\x01\x05\xc0\x81\x00\x00\x00\x00\x00\x90\xffk\x02", b"c\x00c\x00\x00" + ZEROS, b""),
    ("deflate", b"x\x01", b"\x02", b""),
]  # fmt: skip


def test_there_are_ten_of_each():
    assert all(Counts(KINDS[kind].group for kind, *_ in WORST)[group] >= 10 for group in GROUPS)


@pytest.mark.parametrize("case", WORST, ids=range(len(WORST)))
def test_what_was_worst_takes_little_memory(case):
    check(case[0], made(*case[1:]))


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Of each of WORST."""
    if why_not():
        pytest.skip(why_not())
    cases = [(kind, made(*case)) for kind, *case in WORST]
    return dict(zip(WORST, counted(cases, tmp_path_factory.mktemp("steps")), strict=True))


@pytest.mark.parametrize("case", WORST, ids=range(len(WORST)))
def test_what_was_worst_takes_few_instructions(steps, case):
    nbytes = len(made(*case[1:]))
    assert steps[case] <= FREE_STEPS + KINDS[case[0]].steps * nbytes, f"{steps[case] / nbytes:.0f} for each byte"
