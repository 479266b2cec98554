"""Models in the formats that this machine can serve: made, held against their source, measured (docs/convert.md).

Layer 5, above bench.  Frameworks run in processes of their own, which are of this package, too, and need none of what
is named here: it is loaded when somebody asks for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tisfast.convert.conversion import Interrupted, convert
    from tisfast.convert.results import Conversion, Measured, Try
    from tisfast.convert.written_model import write_model

__all__ = ["Conversion", "Interrupted", "Measured", "Try", "convert", "write_model"]
_HOMES: Final = {
    **dict.fromkeys(("Interrupted", "convert"), "conversion"),
    **dict.fromkeys(("Conversion", "Measured", "Try"), "results"),
    "write_model": "written_model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tisfast.convert' has no attribute {name!r}")
    return getattr(import_module(f"tisfast.convert.{_HOMES[name]}"), name)
