"""Models on disk: repositories, versions, files.  Layer 3."""
