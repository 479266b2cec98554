"""The public names for a backend in --backend-directory, which imports them from `tisfast.backend`.

They stay as they are within a major version; all else of this package is ours to change.
"""

import importlib.util
import sys
import types

from tisfast_worker.backend import ArrayBackend, RequestBackend, framework
from tisfast_worker.backend_options import Options
from tisfast_worker.failure import Refusal

__all__ = ["ArrayBackend", "Options", "Refusal", "RequestBackend", "framework"]
PACKAGE = "tisfast"


def offer():
    """Make `tisfast.backend` importable here: a model's environment need not have tisfast."""
    if PACKAGE in sys.modules or importlib.util.find_spec(PACKAGE) is not None:
        return
    package, module = types.ModuleType(PACKAGE), sys.modules[__name__]
    package.__path__, package.backend = [], module
    sys.modules.update({PACKAGE: package, f"{PACKAGE}.backend": module})
