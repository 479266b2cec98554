"""Where a load generator belongs in the layers; until there is one, perf/ measures.  Layer 5."""
