"""What a codec process says of a request is held against the blocks that it was given."""

from __future__ import annotations

import pytest

from tisfast.errors import Internal
from tisfast.wire.plain_values import rebuild

BODY, EXTRA, OFFSET, NBYTES = range(4)


def described(run, change):
    """A real description, changed; what the server makes of it."""

    async def scenario(bench):
        job = bench.parse()
        seen = []
        finish = job.finish

        def look(result):
            seen.append((result, list(job.blocks)))
            finish(result)

        job.finish = look
        await bench.done(job)
        del job.finish
        result, blocks = seen.pop()
        description = list(result)
        change(description, blocks)
        rebuild(bench.runtime.signature, tuple(description), blocks, None)

    run(scenario)


def test_what_is_right_is_taken(run):
    described(run, lambda description, blocks: None)


@pytest.mark.parametrize(
    ("field", "value"),
    [(OFFSET, 1 << 40), (OFFSET, 0), (NBYTES, 8), (NBYTES, 1 << 31), (BODY, 7), (EXTRA, 7), (EXTRA, -2)],
)
def test_a_record_or_block_that_is_not_its_own_is_refused(run, field, value):
    def change(description, blocks):
        description[field] = value if (field, value) != (OFFSET, 0) else blocks[0].offset + blocks[0].nbytes

    with pytest.raises(Internal, match="codec"):
        described(run, change)


def test_a_place_outside_the_blocks_is_refused(run):
    def change(description, blocks):
        owner = next(block for block in blocks if block.offset <= description[OFFSET] < block.offset + block.nbytes)
        record = memoryview(owner)[description[OFFSET] - owner.offset :][: description[NBYTES]]
        place = 48 + 16  # behind the head and the signature of one input with one dimension
        assert int.from_bytes(record[place + 8 : place + 16], "little") == 8  # bytes of two floats
        record[place : place + 8] = (1 << 40).to_bytes(8, "little")

    with pytest.raises(Internal, match="input 0"):
        described(run, change)
