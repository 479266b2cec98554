"""Arguments of pb_utils become what Triton's become: text of str and bytes, a number of whatever is an index, a list of
whatever is a sequence.  What a BYTES tensor holds is bytes, and what numpy counts with is no int.

Raises TypeError that names the function, the argument and what was given.
"""

import operator


def text(function, argument, value):
    """A str of a str or of UTF-8 in bytes."""
    if value.__class__ is str:
        return value
    if isinstance(value, str):  # numpy.str_
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise TypeError(f"{function}: {argument} is not UTF-8: {error} ({bytes(value[:40])!r})") from None
    raise wrong(function, argument, "a str or bytes", value)


def whole(function, argument, value):
    """An int of what can be an index: a bool, an integer of numpy."""
    if value.__class__ is int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise wrong(function, argument, "an integer", value) from None


def truth(function, argument, value):
    """A bool of a bool, an integer, or numpy's bool, which is no index."""
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    return bool(whole(function, argument, value))


def items(function, argument, value):
    """A list of a list, tuple, set, numpy array or another sequence, but not of text."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    kind = type(value)
    if isinstance(value, (str, bytes, bytearray, dict)) or not (
        hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    ):
        raise wrong(function, argument, "a list, or another sequence", value)
    return list(value)


def texts(function, argument, value):
    """A list of str."""
    return [text(function, f"an item of {argument}", each) for each in items(function, argument, value)]


def wrong(function, argument, wanted, value):
    """The TypeError of an argument."""
    given = "None" if value is None else f"an object of type {type(value).__name__}"
    return TypeError(f"{function}: {argument} must be {wanted}, not {given}")
