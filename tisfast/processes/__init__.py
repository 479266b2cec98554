"""Worker processes: their birth, control messages, rings and restarts.  Layer 4 (processes)."""
