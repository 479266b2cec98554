"""Request and response parameters: bool, int and str values under str names."""

import json

from tisfast_worker.errors import TritonModelException


def text(parameters):
    """JSON object text, "" when there are none.  Raises TritonModelException naming what has no place in it."""
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect parameters to be a dict, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/str, found type {type(value)} (parameter '{key}')"
            )
    return json.dumps(parameters, separators=(",", ":")) if parameters else ""
