"""A Python function becomes an endpoint: `tisfast.serve(fn)`, `tisfast.export(fn, repository)` (docs/functions.md).

Layer 6, beside the command line.
"""

from __future__ import annotations

from tisfast.functions.exporting import export
from tisfast.functions.server import FunctionServer, serve
from tisfast.functions.signature import Shape, Tensor

__all__ = ["FunctionServer", "Shape", "Tensor", "export", "serve"]
