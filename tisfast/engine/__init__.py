"""Scheduling: queues, batchers, statistics.  No socket, process or clock of its own.  Layer 3."""
