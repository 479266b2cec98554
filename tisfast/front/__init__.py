"""Owns client sockets: HTTP and gRPC connections, and the requests on them.  Layer 4 (front)."""
