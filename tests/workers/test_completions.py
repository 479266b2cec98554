"""Inputs that user code keeps, and when the server hears that it has let go."""

from __future__ import annotations

import pytest

from tests.workers.models import ANSWER, FINAL, RELEASE, RETAINED, both, model


@both
@pytest.mark.parametrize(
    "keep",
    [
        "r",
        "rs",
        "r.inputs()[0]",
        "arr(r)",
        "arr(r)[1:]",
        "arr(r).reshape(1, -1)",
        "memoryview(arr(r))",
        "r.inputs()[0].to_dlpack()",
        "iter([rs])",
    ],
)
def test_an_input_that_the_model_keeps_is_retained_until_it_lets_go(serve, keep):
    instance = serve(model(f"self.kept[:] = [{keep}] if r.request_id() == 'keep' else []; return [answer(arr(r) + 1)]"))
    assert instance.ask([1, 2], [0]).flags == FINAL
    kept = instance.ask([1, 2], [0], id="keep")
    assert kept.flags == FINAL | RETAINED
    instance.plane.push([instance.record([3, 4], [0])])
    both = sorted((instance.plane.next() for _ in range(2)), key=lambda a: a.kind)
    assert [a.kind for a in both] == [ANSWER, RELEASE] and both[1].request == kept.request and both[0].flags == FINAL


def test_a_release_from_another_thread_does_not_wait_for_a_request(serve):
    body = """
import threading
go = threading.Event()
kept = [arr(r)]
def later():
    go.wait()
    kept.clear()
threading.Thread(target=later, daemon=True).start()
threading.Timer(0.05, go.set).start()
return [answer(arr(r) + 1)]
"""
    instance = serve(model(body))
    kept = instance.ask([1], [0])
    release = instance.plane.next()
    assert kept.flags == FINAL | RETAINED and (release.kind, release.request) == (RELEASE, kept.request)


@both
@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError(rs)",
        "return [3]",
        "return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(str(arr(r))))]",
        "return [answer(arr(r))]",
        "[q for q in rs]; return [answer(arr(q)) for q in rs]",
    ],
)
def test_nothing_is_retained_by_us(serve, body):
    instance = serve(model(body))
    for _ in range(3):
        assert instance.ask([1, 2], [0]).flags == FINAL
