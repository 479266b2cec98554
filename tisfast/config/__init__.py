"""Model configurations and server settings: text to values.  Layer 2."""
