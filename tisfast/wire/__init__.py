"""Bytes to values and back, sans-io.  Layer 2."""
