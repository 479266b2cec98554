"""Models in the formats that this machine can serve: made, held against their source, measured (docs/convert.md).

Layer 5, above bench.  Frameworks run in processes of their own.
"""

from tisfast.convert.conversion import Interrupted, convert
from tisfast.convert.results import Conversion, Measured, Try
from tisfast.convert.written_model import write_model

__all__ = ["Conversion", "Interrupted", "Measured", "Try", "convert", "write_model"]
