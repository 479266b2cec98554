"""tisfast: an inference server that serves what Triton serves, from `pip install`."""

from typing import Final

__version__: Final = "0.1.0"
