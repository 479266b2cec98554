"""As much of cuda-python as tritonclient's CUDA regions use, on the stand-in for the driver."""
