"""What can run a model: one file for each backend, loaded by name (tisfast_worker/serve.py)."""
