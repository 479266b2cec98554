"""Owns processes: nurseries, instances, the control plane.  Layer 4."""
