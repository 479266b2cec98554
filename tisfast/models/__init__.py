"""Loaded models: how they are loaded, changed and drained, and what their instances share.  Layer 4 (models)."""
