"""`pytriton` is tisfast.pytriton: each module of the one is the same object as that of the other."""

import importlib
import importlib.abc
import importlib.machinery
import sys

from tisfast.pytriton import __version__

__all__ = ["__version__", "client", "model_config", "triton"]


class _SameModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `pytriton.x` as `tisfast.pytriton.x`."""

    def __init__(self):
        self._specs = {}

    def find_spec(self, fullname, path=None, target=None):
        """Of all below `pytriton`."""
        if not fullname.startswith(f"{__name__}."):
            return None
        try:
            importlib.import_module(f"tisfast.{fullname}")
        except ModuleNotFoundError as error:
            if error.name != f"tisfast.{fullname}":
                raise
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec):
        """The module that is there."""
        module = sys.modules[f"tisfast.{spec.name}"]
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module):
        """It has run; and what it knows of itself stays."""
        module.__spec__ = self._specs.pop(module.__spec__.name)


# In front: else a package that is the same has its modules found in its folder, and loaded a second time.
sys.meta_path.insert(0, _SameModules())
client, model_config, triton = (
    importlib.import_module(f"{__name__}.{name}") for name in ("client", "model_config", "triton")
)
