"""tisfast: an inference server that serves what Triton serves, from `pip install`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tisfast.functions import FunctionServer, Shape, Tensor, export, serve

__all__ = ["FunctionServer", "Shape", "Tensor", "__version__", "export", "serve"]
__version__: Final = "0.1.0"


def __getattr__(name: str) -> Any:
    """What serves functions is loaded when somebody asks for it."""
    if name not in __all__:
        raise AttributeError(f"module 'tisfast' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module("tisfast.functions"), name)
