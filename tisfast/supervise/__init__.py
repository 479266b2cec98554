"""Worker processes: their nurseries, control messages, restarts and the models made of them.  Layer 4 (supervise)."""
