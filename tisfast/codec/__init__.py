"""Work whose length a client or a model chooses, in processes beside the event loop.  Layer 3 (codec)."""
