"""Measuring servers: load, times, what they are made of, and how far they can be trusted (docs/bench.md).  Layer 5.

The server never imports it.  `tisfast bench` does when it is typed.
"""
