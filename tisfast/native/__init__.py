"""The only place with pointers: Cython over csrc.  Layer 1."""
