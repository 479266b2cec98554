"""Measurements: the real Triton beside tisfast (bench, compare), scenarios (macro) and hot modules (micro)."""
