"""The real Triton server and the real perf_analyzer, installed from public wheels and run beside tisfast."""
