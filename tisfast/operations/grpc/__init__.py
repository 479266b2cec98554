"""The gRPC methods of the operations.  Layer 4 (operations)."""
