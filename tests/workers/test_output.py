"""Answers and the room for them."""

from __future__ import annotations

from tests.workers.models import RELEASE, both, model


@both
def test_a_full_output_arena_waits_for_blocks_to_come_back(serve):
    instance = serve(model("return [answer(np.zeros(30000, 'f4')) for r in rs]"), output_bytes=1 << 20)
    count = 8  # 8 answers of 120 KB; 4 fit
    tickets = instance.plane.push([instance.record([1], [0]) for _ in range(count)])
    got = []
    while len(got) < count:
        answer = instance.plane.next()
        if answer.kind == RELEASE:
            continue
        assert len(answer.outputs[0][4]) == 120000
        got.append(answer.request)
        instance.plane.give_back(answer.block)
    assert got == tickets


def test_an_answer_larger_than_the_arena_says_so(serve):
    instance = serve(model("return [answer(np.zeros(300000, 'f4'))]"), output_bytes=1 << 20)
    answer = instance.ask([1], [0])
    assert answer.status == 5
    assert answer.text == "an answer of 1200064 bytes does not fit the output arena of 524288 bytes"
