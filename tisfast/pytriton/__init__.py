"""PyTriton's API on tisfast: Python callables of this process as models of a server (docs/coming_from_pytriton.md).

    from tisfast.pytriton.decorators import batch
    from tisfast.pytriton.model_config import ModelConfig, Tensor
    from tisfast.pytriton.triton import Triton

Nothing of it is loaded before it is imported.
"""

from typing import Final

__version__: Final = "0.7.0"
"""Of PyTriton, whose API this is."""
