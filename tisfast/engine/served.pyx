"""The face that model versions show to fronts and to each other.  Layer 3 (engine)."""

from tisfast.config.metric_control import first_response_bounds_ms


cdef class Runtime:
    """See served.pxd.  Cython has no abstract methods: subclasses override all that raise here."""

    cdef int found(self, ModelSignature signature, Arena arena, Clock clock, object config) except -1:
        self.signature = signature
        self.arena = arena
        self.stats = Statistics()
        self.timings = Timings(first_response_bounds_ms(config))
        self.config = config
        self.clock = clock
        self.links = []
        return 0

    cdef InferRequest submit(self, InferInput input, Reply reply, object trace=None, InferRequest parent=None):
        raise NotImplementedError(f"{type(self).__name__}.submit")

    cdef int cancel(self, InferRequest request) except -1:
        raise NotImplementedError(f"{type(self).__name__}.cancel")

    cdef list needs(self):
        return [self]

    @property
    def platform(self) -> str:
        """Row 1.10: the config's platform, or its backend."""
        return self.config.get("platform") or self.backend

    @property
    def backend(self) -> str:
        """The config's backend."""
        return self.config.get("backend", "")
