"""How much a call may bring, and what a compressed body may expand to."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from tests.front.helpers import ADD, infer, serve
from tisfast import limits
from tisfast.wire.signature import ModelSignature

INDEX = b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\n"
GZIP = b"Content-Encoding: gzip\r\n"


def sized(head, body):
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def signature(dims, dtype=11, batch=0, ragged=False):
    return ModelSignature("m", "1", batch, False, [("I", dtype, dims, False, ragged)], [("O", 11, (-1,))])


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (signature((16,)), 16 * 32),
        (signature((16,), batch=8), 8 * 16 * 32),
        (signature((1000, 1000), dtype=12), 8_000_000 * 8),
        (signature((16,), dtype=1), 16 * 32),
        (signature(()), 32),
    ],
)
def test_a_body_may_expand_to_what_its_inputs_can_be(made, expected):
    assert made.expanded_bytes_max == expected + limits.EXPANDED_BYTES_FREE


@pytest.mark.parametrize("made", [signature((-1,)), signature((4,), dtype=13), signature((4,), ragged=True)])
def test_inputs_of_any_size_have_no_such_bound(made):
    assert made.expanded_bytes_max == 1 << 63


@pytest.mark.parametrize("coded", [True, False])
def test_calls_that_are_no_inferences_are_small(coded):
    body = b" " * (limits.HTTP_CALL_BYTES_MAX + 1)

    async def scenario(server):
        client = await server.connect()
        client.write(sized(INDEX + GZIP, gzip.compress(body)) if coded else sized(INDEX, body))
        answer = await client.read()
        assert answer.status == 400 and str(limits.HTTP_CALL_BYTES_MAX).encode() in answer.body
        assert server.routed == 0

    serve(scenario)


def test_an_inference_may_be_larger():
    body = infer().split(b"\r\n\r\n", 1)[1] + b" " * (2 * limits.HTTP_CALL_BYTES_MAX)

    async def scenario(server):
        client = await server.connect()
        client.write(sized(ADD + GZIP, gzip.compress(body)))
        await server.dispatched(1)
        server.execute()
        assert (await client.read()).status == 500  # as the fake instance answers

    serve(scenario)


def test_expanding_stops_at_the_bound():
    bomb = sized(INDEX + GZIP, gzip.compress(bytes(1 << 26)))

    async def scenario(server):
        client = await server.connect()
        tracemalloc.start()
        try:
            client.write(bomb)
            await client.read()
            assert tracemalloc.get_traced_memory()[1] < 4 * (len(bomb) + limits.HTTP_CALL_BYTES_MAX)
        finally:
            tracemalloc.stop()

    serve(scenario)
