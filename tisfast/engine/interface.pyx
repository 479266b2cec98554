"""The face that model versions show to fronts and to each other.  Layer 3 (engine)."""

from tisfast.engine.core cimport Link

from tisfast.config.metric_control import first_response_bounds_ms


cdef class Runtime:
    """See interface.pxd.  Cython has no abstract methods: subclasses override all that raise here."""

    cdef int found(self, ModelSignature signature, Arena arena, Clock clock, object config) except -1:
        self.signature = signature
        self.arena = arena
        self.stats = Statistics()
        self.timings = Timings(first_response_bounds_ms(config))
        self.config = config
        self.clock = clock
        self.links = []
        return 0

    cdef InferRequest submit(self, InferInput input, AnswerSink sink, object trace=None, InferRequest parent=None):
        raise NotImplementedError(f"{type(self).__name__}.submit")

    cdef int expect(self, uint64_t missing) except -1:
        raise NotImplementedError(f"{type(self).__name__}.expect")

    cdef int cancel(self, InferRequest request) except -1:
        raise NotImplementedError(f"{type(self).__name__}.cancel")

    cdef list needs(self):
        return [self]

    def count_on_from(self, Runtime before) -> None:
        """It takes the place of an earlier copy of the same version: its counters go on, of which both have one set."""
        self.stats = before.stats
        self.timings = before.timings

    def restate(self, config) -> None:
        """Its configuration is another one in what it does not look at itself (instance groups, version policy)."""
        self.config = config

    @property
    def pending(self) -> int:
        """Requests that no instance has begun: those in the queue, and what was handed ahead to busy instances."""
        cdef Link link
        return self.stats.pending + sum([link.waiting() for link in self.links])

    @property
    def platform(self) -> str:
        """The config's platform, or its backend."""
        return self.config.get("platform") or self.backend

    @property
    def backend(self) -> str:
        """The config's backend."""
        return self.config.get("backend", "")


def models_under(Runtime runtime) -> set:
    """Names of the models whose instances a request to this one needs: its own, or those of an ensemble's steps."""
    return {(<Runtime>each).signature.name for each in runtime.needs()}
