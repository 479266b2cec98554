"""Reports about requests: metrics, traces and the access log.  Layer 4 (telemetry)."""
