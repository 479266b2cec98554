"""A backend's options from a configuration's `parameters`: texts, read as what they mean.  Errors are Triton's."""

import json

from tisfast_worker.failure import Refusal

_TRUE, _FALSE = frozenset({"true", "on", "1"}), frozenset({"false", "off", "0"})


class OptionError(Refusal):
    """A parameter has a value that means nothing; the text names both."""


class Options:
    """The parameters of one model.  `said`: what was read of them, for the log."""

    def __init__(self, config):
        """`config`: JSON text."""
        parameters = json.loads(config).get("parameters", {})
        self._values = {key: value.get("string_value", "") for key, value in parameters.items()}
        self.said = []

    def text(self, key, default=""):
        """The value as it is."""
        if key not in self._values:
            return default
        self.said.append(f"{key} to {self._values[key]}")
        return self._values[key]

    def flag(self, key, default=None):
        """A boolean.  Raises OptionError."""
        value = self.text(key, None)
        return default if value is None else truth(key, value)

    def number(self, key, default=None):
        """A whole number.  Raises OptionError."""
        value = self.text(key, None)
        return default if value is None else whole(key, value)

    def count(self, key):
        """A number of threads, 0 where it is not said.  Raises OptionError."""
        value = self.number(key, 0)
        if value < 0:
            raise OptionError(f"parameter {key} is {value}: it is a number of threads, 0 or more")
        return value

    def fraction(self, key, default=None):
        """A number.  Raises OptionError."""
        value = self.text(key, None)
        if value is None:
            return default
        try:
            return float(value)
        except ValueError:
            raise OptionError(f"failed to convert '{value}' to float: parameter '{key}' is a number") from None

    def choice(self, key, values, default):
        """One of some texts.  Raises OptionError."""
        value = self.text(key, default)
        if value not in values:
            raise OptionError(f"parameter '{key}' is '{value}', and can be {', '.join(values)}")
        return value

    def present(self, keys):
        """Those of the keys that the configuration has."""
        return [key for key in keys if key in self._values]

    def beginning(self, *prefixes):
        """(key, value) of all whose names begin so."""
        return [(key, self.text(key)) for key in sorted(self._values) if key.startswith(prefixes)]


def truth(key, value):
    """A boolean.  Raises OptionError."""
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise OptionError(f"failed to convert '{value}' to boolean: parameter '{key}' is true, on or 1, or false, off or 0")


def whole(key, value):
    """A whole number.  Raises OptionError."""
    try:
        return int(value)
    except ValueError:
        raise OptionError(
            f"failed to convert '{value}' to integral number: parameter '{key}' is a whole number"
        ) from None
