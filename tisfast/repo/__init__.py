"""What is on disk: repositories, versions, files.  Layer 3."""
