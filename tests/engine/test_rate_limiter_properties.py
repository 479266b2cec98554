"""Whatever instances come, run, die and go: never more is out than there is, everything comes back, nobody starves."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tisfast.config.rate_limits import Demand, RateLimit
from tisfast.engine.rate_limiter import GLOBAL_DEVICE, RateLimiter

NAMES = ("r", "s", "t")
# Device 0 and 1 share nothing but `t`, which is the server's.
DEMANDS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4), max_size=3)


class Job:
    """One instance with a queue of `work` executions."""

    def __init__(self, machine, number, demands, priority, device):
        self.number, self.device, self.demands, self.work = number, device, demands, 0
        self.passed = 0  # starts of others since it began to wait
        self.machine = machine
        limit = RateLimit(tuple(Demand(name.upper(), n, name == "t") for name, n in demands.items()), priority)
        self.claim = machine.limiter.register(f"m_{number}", limit, device, self.go)

    def needs(self):
        return {(name, GLOBAL_DEVICE if name == "t" else self.device): n for name, n in self.demands.items()}

    def go(self):
        if self.work and not self.claim.holds and self.claim.may_run():
            self.claim.take()
            self.work -= 1
            for other in self.machine.jobs:
                if other is not self and other.work and not other.claim.holds and self.rivals(other):
                    other.passed += 1
            self.passed = 0

    def rivals(self, other):
        return bool(self.needs().keys() & other.needs().keys())

    def end(self):
        self.claim.give_back()
        self.go()
        self.machine.limiter.settle()

    def drop(self):
        """Its clients left."""
        self.work = 0
        self.claim.leave()
        self.machine.limiter.settle()


class Limiting(RuleBasedStateMachine):
    @initialize(grants=st.just({}) | st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(4, 8))))
    def build(self, grants):
        self.grants = grants
        self.limiter = RateLimiter([(name, count, None) for name, count in grants.items()])
        self.jobs, self.made = [], 0

    @precondition(lambda self: len(self.jobs) < 6)
    @rule(demands=DEMANDS, priority=st.integers(0, 3), device=st.integers(0, 1))
    def load(self, demands, priority, device):
        self.made += 1
        self.jobs.append(Job(self, self.made, demands, priority, device))

    @precondition(lambda self: self.jobs)
    @rule(which=st.integers(0, 5), count=st.integers(1, 3))
    def ask(self, which, count):
        job = self.jobs[which % len(self.jobs)]
        job.work += count
        job.go()

    @precondition(lambda self: any(job.claim.holds for job in self.jobs))
    @rule(which=st.integers(0, 5))
    def end(self, which):
        running = [job for job in self.jobs if job.claim.holds]
        running[which % len(running)].end()

    @precondition(lambda self: self.jobs)
    @rule(which=st.integers(0, 5))
    def drop(self, which):
        self.jobs[which % len(self.jobs)].drop()

    @precondition(lambda self: self.jobs)
    @rule(which=st.integers(0, 5))
    def unload(self, which):
        self.limiter.unregister(self.jobs.pop(which % len(self.jobs)).claim)

    @invariant()
    def no_more_is_out_than_there_is(self):
        if not hasattr(self, "jobs"):
            return
        held = {}
        for job in self.jobs:
            for key, n in job.needs().items():
                held[key] = held.get(key, 0) + n * job.claim.holds
        told = {(name, device): (limit, taken) for name, device, limit, taken in self.limiter.resources()}
        assert {key: taken for key, (_, taken) in told.items()} == held
        for (name, device), (limit, taken) in told.items():
            largest = max(job.needs().get((name, device), 0) for job in self.jobs)
            assert limit == self.grants.get(name, largest)
            assert taken <= limit or name not in self.grants  # a default shrinks when its largest user goes

    @invariant()
    def nobody_waits_who_could_run(self):
        """The machine never stands still: where nobody runs, nobody waits."""
        for job in getattr(self, "jobs", ()):
            rivals = [other for other in self.jobs if other is not job and job.rivals(other)]
            if job.work and not job.claim.holds:
                assert any(other.claim.holds for other in self.jobs), job.number
                assert rivals

    def teardown(self):
        for job in getattr(self, "jobs", ()):
            job.work += 5
            job.passed = 0
            job.go()
        # Weights are 1 to 3, and who begins counts two executions: until its turn each of the others starts six times
        # and once more that was under way; while a claim of several resources waits, so may those it shares only one
        # of them with.
        most = 7 * len(getattr(self, "jobs", ())) + 7
        while running := [job for job in getattr(self, "jobs", ()) if job.claim.holds]:
            assert all(job.passed <= most for job in self.jobs)
            running[0].end()
        if hasattr(self, "jobs"):
            assert all(job.work == 0 for job in self.jobs)
            assert all(taken == 0 for *_, taken in self.limiter.resources())


TestLimiting = Limiting.TestCase
TestLimiting.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
