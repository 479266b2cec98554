"""Warnings of clients."""


class PyTritonWarning(UserWarning):
    """Base of all of them."""


class NotSupportedTimeoutWarning(PyTritonWarning):
    """A timeout has no effect where it was given, or another one is longer."""
