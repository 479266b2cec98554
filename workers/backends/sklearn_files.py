"""Files of scikit-learn: what joblib, pickle and skops have written."""

import os
import sys
import warnings

from tisfast_worker.backend import framework
from tisfast_worker.failure import Refusal
from tisfast_worker.serving_context import current

HARMLESS = ("numpy.dtype",)
"""Types that skops calls unknown, and that run nothing."""
_TYPES_NAMED_MAX = 20


class SklearnError(Refusal):
    """A file is no model that can be served, or a model refuses what it is asked; the text says why."""


def read(path, trusted, model):
    """The object in a file.  trusted: types that a file of skops may have beside those that skops knows.

    Raises SklearnError, FrameworkMissing, and ModuleNotFoundError where the object needs a package that is missing.
    """
    if not os.path.isfile(path):
        raise SklearnError(f"unable to find '{path}' for model instance '{model.instance}'")
    framework("sklearn")
    if model.version_dir not in sys.path:
        sys.path.append(model.version_dir)  # classes of the model's own lie beside it
    with open(path, "rb") as file:
        is_zip = file.read(4) == b"PK\x03\x04"
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = _read_skops(path, trusted) if is_zip else framework("joblib").load(path)
    except (ModuleNotFoundError, SklearnError, MemoryError):
        raise
    except Exception as error:  # to read a pickle is to run it
        raise SklearnError(f"{path} cannot be read as a model of scikit-learn: {_said(error)}") from None
    _tell(told, path, model)
    return found


def _read_skops(path, trusted):
    skops = framework("skops.io")
    unknown = sorted(set(skops.get_untrusted_types(file=path)) - {*trusted, *HARMLESS})
    if unknown:
        named = ", ".join(unknown[:_TYPES_NAMED_MAX])
        raise SklearnError(
            f"{path} has types that skops does not know, and that could run code: {named}. If you "
            "trust them, name them in the parameter trusted_types"
        )
    return skops.load(path, trusted=[*trusted, *HARMLESS])


def _said(error):
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, AttributeError) and "__main__" in text:
        text += ". It stood in the program that saved the model: put it into a module beside the file, and save anew"
    return text


def _tell(told, path, model):
    """Once of a model that another version has saved."""
    for each in told:
        saved = getattr(each.message, "original_sklearn_version", "")
        if saved:
            text = (
                f"{path} of model '{model.name}' was saved by scikit-learn {saved} and is read by "
                f"{each.message.current_sklearn_version}: it may answer otherwise, or fail"
            )
            current().log("WARN", text, "sklearn.py", 0, once="version")
            return
