"""Owns client sockets: HTTP and metrics.  Layer 4."""
