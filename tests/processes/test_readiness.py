"""A model's own is_ready, asked of workers that answer, do not, or end."""

from __future__ import annotations

import asyncio

import pytest

from tisfast.processes.readiness import ReadinessCheck, asked


@pytest.fixture
def sent():
    return []


@pytest.fixture
def check(loop, sent):
    return ReadinessCheck("m_0", loop, sent.append)


async def outcome(said):
    return await said


def test_one_question_at_a_time(check, sent, run):
    first, second = check.ask(), check.ask()
    assert sent == [{"t": "is_ready", "n": 1}]
    check.answered({"n": 1, "reason": "no"})
    assert run(outcome(first)) == run(outcome(second)) == "no"
    third = check.ask()
    check.answered({"n": 1, "reason": "of the first"})
    check.answered({"n": 2, "reason": ""})
    assert run(outcome(third)) == "" and len(sent) == 2


def test_a_worker_that_does_not_answer(loop, sent, run):
    check = ReadinessCheck("m_0", loop, sent.append, 0.01)
    late = "is_ready() of instance m_0 did not answer within 0.01 s"
    assert run(outcome(check.ask())) == late
    assert check.ask().done() and run(outcome(check.ask())) == late and len(sent) == 1
    check.answered({"n": 1, "reason": ""})
    assert not check.ask().done() and len(sent) == 2
    check.close()


def test_a_worker_that_ends(check, run):
    said = check.ask()
    check.close()
    assert run(outcome(said)) == "instance m_0 has ended"


def test_the_first_reason_of_all_instances(loop, run):
    checks = [ReadinessCheck(f"m_{i}", loop, lambda _: None) for i in range(3)]
    said = asked(checks)
    for each, reason in zip(checks, ("", "no", "neither"), strict=True):
        each.answered({"n": 1, "reason": reason})
    assert run(outcome(said)) == "no"
    assert asked([]) is None


def test_who_leaves_does_not_end_the_check_of_others(check, loop, run):
    async def leave():
        task = asyncio.ensure_future(outcome(asked([check])))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return check.ask()

    said = run(leave())
    check.answered({"n": 1, "reason": "no"})
    assert run(outcome(said)) == "no"
