"""The claim of tf_ring.h, looked through in every order of its steps, with a worker that dies at any of them.

The worker's steps are those of Loop._batch: read the slot, claim, advance head, execute, answer. The server's are those
of RingLink: recall, and after a death what close() makes of the ring's head. Each step is one atomic operation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

OFFERED, BEGUN, RECALLED = range(3)
BATCHES = 3


@dataclass(frozen=True)
class State:
    """Of one channel, its worker, and what became of each batch."""

    claims: tuple[int, ...] = (OFFERED,) * BATCHES
    head: int = 0
    at: str = "look"  # the worker's next step
    alive: bool = True
    begun: bool = False  # what the claim said
    executed: tuple[int, ...] = (0,) * BATCHES
    answered: tuple[int, ...] = (0,) * BATCHES
    out: frozenset[int] = frozenset(range(BATCHES))  # that the server waits for
    again: tuple[int, ...] = (0,) * BATCHES  # put in the queue again
    failed: tuple[int, ...] = (0,) * BATCHES
    closed: bool = False


def put(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])


def worker_steps(s: State) -> list[State]:
    if not s.alive or s.head == BATCHES and s.at == "look":
        return []
    if s.at == "look":
        return [replace(s, at="claim")]
    if s.at == "claim":
        begun = s.claims[s.head] == OFFERED
        claims = put(s.claims, s.head, BEGUN) if begun else s.claims
        return [replace(s, at="advance", begun=begun, claims=claims)]
    if s.at == "advance":
        return [replace(s, at="execute" if s.begun else "look", head=s.head + 1)]
    done = s.head - 1
    if s.at == "execute":
        return [replace(s, at="answer", executed=put(s.executed, done, s.executed[done] + 1))]
    return [replace(s, at="look", answered=put(s.answered, done, 1))]


def server_steps(s: State) -> list[State]:
    steps = []
    for batch in s.out:
        if s.answered[batch]:
            steps.append(replace(s, out=s.out - {batch}))
        elif not s.closed and s.claims[batch] == OFFERED:  # a recall that comes too late changes nothing
            claims = put(s.claims, batch, RECALLED)
            steps.append(replace(s, out=s.out - {batch}, claims=claims, again=put(s.again, batch, s.again[batch] + 1)))
    if not s.alive and not s.closed and not any(s.answered[batch] for batch in s.out):  # its answers are read first
        again, failed = s.again, s.failed
        for batch in s.out:
            if batch < s.head:
                failed = put(failed, batch, failed[batch] + 1)
            else:
                again = put(again, batch, again[batch] + 1)
        steps.append(replace(s, closed=True, out=frozenset(), again=again, failed=failed))
    return steps


def all_states() -> set[State]:
    seen: set[State] = set()
    new = [State()]
    while new:
        state = new.pop()
        if state in seen:
            continue
        seen.add(state)
        new += worker_steps(state) + server_steps(state)
        if state.alive:
            new.append(replace(state, alive=False))
    return seen


def test_every_request_has_one_fate_in_every_order_of_steps():
    ends = [state for state in all_states() if not worker_steps(state) and not server_steps(state) and not state.out]
    assert len(ends) > 100
    fates = set()
    for end in ends:
        for batch in range(BATCHES):
            fate = (end.answered[batch] and not end.again[batch], end.again[batch], end.failed[batch])
            assert end.again[batch] + end.failed[batch] + (end.answered[batch] if not end.again[batch] else 0) == 1
            assert not (end.again[batch] and end.executed[batch]), "what is put in the queue again was never executed"
            fates.add(fate)
    assert len(fates) == 3  # answered, again and failed all happen


def test_nothing_is_executed_twice_or_after_it_was_taken_back():
    for state in all_states():
        for batch in range(BATCHES):
            assert state.executed[batch] <= 1
            assert not (state.claims[batch] == RECALLED and state.executed[batch])
