"""Operations of a server besides inferences, as HTTP routes and as gRPC methods.  Layer 4 (operations)."""
