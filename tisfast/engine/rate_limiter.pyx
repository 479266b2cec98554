"""Which instance may execute next, where executions share resources.  Pure: no clock, no I/O.  Layer 3 (engine).

An execution takes what its instance group's `rate_limiter` says and gives it back when it is over.  Claims wait in one
order, the same for all resources: lowest rank first, and the earlier one among equals.  A waiting claim keeps
those behind it from what it needs, also while it lacks something else: small demands cannot starve a large one, and as
the order is one, nobody waits in a circle.  Claims that share nothing with it are not held up.

What counts is Triton's executions x priority, which begin with FIRST_COUNT, with one difference: who had nothing to run does
not collect turns meanwhile.  When it asks again, its score is lifted to where those that use the same resources have come.
"""

from libc.stdint cimport int64_t, uint64_t

from tisfast.errors import BadRequest

GLOBAL_DEVICE = -1
cdef int64_t GLOBAL = GLOBAL_DEVICE
cdef int64_t EVERYWHERE = -2
cdef int64_t FIRST_COUNT = 2  # executions that an instance counts when it asks for its first, as in Triton


cdef class Pool:
    """See rate_limiter.pxd."""

    def __cinit__(self, str name, int64_t device):
        self.name = name
        self.device = device
        self.waiting = []
        self.members = {}

    cdef int enter(self, Claim claim) except -1:
        cdef Py_ssize_t at = len(self.waiting)
        while at and claim.before(<Claim>self.waiting[at - 1]):
            at -= 1
        self.waiting.insert(at, claim)
        return 0


cdef class Claim:
    """See rate_limiter.pxd."""

    cpdef bint may_run(self) except -1:
        """Whether its execution may start now; if not, it waits, and `wake` is called when its turn has come."""
        cdef Pool pool
        cdef int64_t floor = -1
        if self.holds:
            return False
        if not self.waiting:
            for pool in self.pools:
                if floor < 0 or pool.floor < floor:
                    floor = pool.floor
            self.score = max(self.score, floor)
        if self.fits():
            return True
        if not self.waiting:
            self.waiting = True
            self.limiter.orders += 1
            self.order = self.limiter.orders
            for pool in self.pools:
                pool.enter(self)
        return False

    cdef bint before(self, Claim other) noexcept:
        cdef int64_t rank = self.score + FIRST_COUNT * self.priority, others = other.score + FIRST_COUNT * other.priority
        if rank != others:
            return rank < others
        return self.waiting and self.order < other.order

    cdef bint fits_beside(self, list holders) except -1:
        cdef int64_t held
        cdef Pool pool
        cdef Claim holder
        for pool, count in zip(self.pools, self.counts):
            held = <int64_t>count
            for holder in holders:
                if holder.holds:
                    held += <int64_t>pool.members.get(holder, 0)
            if held > pool.limit:
                return False
        return True

    cdef bint fits(self) except -1:
        cdef Pool pool
        cdef Claim first
        for pool, count in zip(self.pools, self.counts):
            if pool.taken + <int64_t>count > pool.limit:
                return False
            if pool.waiting:
                first = <Claim>pool.waiting[0]
                if first is not self and not self.before(first):
                    return False
        return True

    cpdef int take(self) except -1:
        """Its execution starts; may_run has just said yes."""
        cdef Pool pool
        assert not self.holds
        self.leave()
        self.holds = True
        self.executions += 1
        for pool, count in zip(self.pools, self.counts):
            pool.taken += <int64_t>count
            pool.floor = max(pool.floor, self.score)
        self.score += self.priority
        return 0

    cpdef int give_back(self) except -1:
        """Its execution is over, or its worker is dead."""
        cdef Pool pool
        if not self.holds:
            return 0
        self.holds = False
        for pool, count in zip(self.pools, self.counts):
            pool.taken -= <int64_t>count
        self.limiter.freed.extend(self.pools)
        return 0

    cpdef int leave(self) except -1:
        """It has nothing to run any more, and waits no longer."""
        cdef Pool pool
        if not self.waiting:
            return 0
        self.waiting = False
        for pool in self.pools:
            pool.waiting.remove(self)
        self.limiter.freed.extend(self.pools)
        return 0


cdef class RateLimiter:
    """grants: (resource, units, device or None for every device) of --rate-limit-resource; of equals the last counts."""

    def __cinit__(self, grants=()):
        self.pools = {}
        self.freed = []
        self.limits = {(name.lower(), EVERYWHERE if device is None else device): count for name, count, device in grants}

    def register(self, str instance, rate_limit, int64_t device, wake) -> Claim:
        """The claim of one instance.

        rate_limit: config.rate_limits.RateLimit; device: where the instance runs, 0 for a CPU; wake: called when the
        instance may run after it had to wait.  Raises BadRequest, and nothing is registered, for what can never be.
        """
        cdef Claim claim = Claim.__new__(Claim)
        cdef dict needs = {}
        for demand in rate_limit.demands:
            key = (demand.name.lower(), GLOBAL if demand.is_global else device)
            needs[key] = max(needs.get(key, 0), demand.count)
            self._check(demand.name, key, needs)
        claim.instance, claim.limiter, claim.wake = instance, self, wake
        claim.priority = max(1, rate_limit.priority)
        claim.pools, claim.counts = [self._pool(key) for key in needs], list(needs.values())
        for pool, count in zip(claim.pools, claim.counts):
            (<Pool>pool).members[claim] = count
            self._resize(pool)
        return claim

    def unregister(self, Claim claim) -> None:
        """The instance is gone; what it held is free."""
        claim.give_back()
        claim.leave()
        for pool in claim.pools:
            self._forget(pool, claim)
        claim.pools, claim.counts = [], []
        self.settle()

    def resources(self) -> list[tuple[str, int, int, int]]:
        """Name, device (GLOBAL_DEVICE: the server's), units and units taken of every resource that is needed."""
        cdef Pool pool
        return sorted((pool.name, pool.device, pool.limit, pool.taken) for pool in self.pools.values())

    def _check(self, str called, tuple key, dict needs):
        """Called: the resource as the configuration spells it."""
        for name, device in [*self.pools, *needs]:
            if name == key[0] and (device == GLOBAL) != (key[1] == GLOBAL):
                raise BadRequest(
                    f'Resource "{called}" is present as both global and device-specific resource in the model configuration.')
        granted = self._granted(*key)
        if granted is not None and granted < needs[key]:
            raise BadRequest(
                f'Resource count for "{called}" is limited to {granted} which will prevent scheduling of one or more model '
                f"instances, the minimum required count is {needs[key]}")

    def _granted(self, str name, int64_t device):
        """The grants of the command line; a resource that it does not name has no units then.  None: no grants."""
        granted = self.limits.get((name, device), self.limits.get((name, EVERYWHERE)))
        if granted is None and device == GLOBAL:  # Triton takes what is said of any device for the server's
            granted = max((count for (known, _), count in self.limits.items() if known == name), default=None)
        return 0 if granted is None and self.limits else granted

    def _pool(self, tuple key) -> Pool:
        if key not in self.pools:
            self.pools[key] = Pool(*key)
        return self.pools[key]

    def _forget(self, Pool pool, Claim claim) -> None:
        del pool.members[claim]
        if pool.members:
            self._resize(pool)
        else:
            del self.pools[pool.name, pool.device]

    def _resize(self, Pool pool) -> None:
        """Unless the command line says how much there is, as much as the largest single execution needs."""
        granted = self._granted(pool.name, pool.device)
        pool.limit = max(pool.members.values()) if granted is None else granted

    cpdef int settle(self) except -1:
        """Wake every claim that can go now.  After units were given back or a claim left."""
        if self.waking:
            return 0  # whoever is at it sees what has been freed meanwhile
        self.waking = True
        failure = None  # of one model: the others go first
        try:
            while self.freed:
                failure = self.serve(<Pool>self.freed.pop(), failure)
        finally:
            self.waking = False
        if failure is not None:
            raise failure
        return 0

    cdef object serve(self, Pool pool, object failure):
        """Wake those at the head of one queue, until one has to go on waiting."""
        cdef Claim claim
        while pool.waiting:
            claim = <Claim>pool.waiting[0]
            if not claim.fits():
                break
            try:
                claim.wake()
            except Exception as error:
                failure = error
            if claim.waiting and claim.fits():
                claim.leave()  # it has nothing to run any more
        return failure
