"""The load generator behind `tisfast bench`.  Layer 5."""
