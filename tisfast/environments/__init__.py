"""Python environments of models: what names one, and how it is prepared in the cache.  Layer 3 (environments)."""
