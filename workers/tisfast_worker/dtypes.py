"""Element types by their ModelConfig number, as they travel on the wire.  Does not import numpy."""

UINT16 = 3
BYTES = 13
BF16 = 14
BF16_BITS = "<u2"
"""The type of arrays of BF16 for backends: numpy has no such type."""

# code: (KServe name, ModelConfig name, bytes of an element (0: variable), numpy dtype string ("" where it has none))
TYPES = {
    1: ("BOOL", "TYPE_BOOL", 1, "?"),
    2: ("UINT8", "TYPE_UINT8", 1, "<u1"),
    3: ("UINT16", "TYPE_UINT16", 2, "<u2"),
    4: ("UINT32", "TYPE_UINT32", 4, "<u4"),
    5: ("UINT64", "TYPE_UINT64", 8, "<u8"),
    6: ("INT8", "TYPE_INT8", 1, "<i1"),
    7: ("INT16", "TYPE_INT16", 2, "<i2"),
    8: ("INT32", "TYPE_INT32", 4, "<i4"),
    9: ("INT64", "TYPE_INT64", 8, "<i8"),
    10: ("FP16", "TYPE_FP16", 2, "<f2"),
    11: ("FP32", "TYPE_FP32", 4, "<f4"),
    12: ("FP64", "TYPE_FP64", 8, "<f8"),
    13: ("BYTES", "TYPE_STRING", 0, "O"),
    14: ("BF16", "TYPE_BF16", 2, ""),
}
# One character of a native dtype says all; "l" and "q" (and "L", "Q") are both 64 bits wide where we run.
CODE_BY_CHAR = {
    **{"?": 1, "B": 2, "H": 3, "I": 4, "L": 5, "Q": 5, "b": 6, "h": 7, "i": 8, "l": 9, "q": 9},
    **{"e": 10, "f": 11, "d": 12, "O": 13, "S": 13},
}


def wire_name(code):
    """KServe's name of a type code, or the number itself when it is not one of ours."""
    return TYPES[code][0] if code in TYPES else str(code)


def dims_text(dims):
    """A shape as Triton prints it: [2,-1]."""
    return "[" + ",".join(map(str, dims)) + "]"
