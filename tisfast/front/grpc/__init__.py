"""The gRPC front: HTTP/2 connections, RPCs, the inference service.  Layer 4 (front)."""
