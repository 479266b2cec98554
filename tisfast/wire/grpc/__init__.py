"""gRPC messages to values and back, sans-io.  Layer 2 (wire)."""
