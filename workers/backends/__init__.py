"""Backends, which run models: one file each, loaded by name (tisfast_worker/serve.py)."""
