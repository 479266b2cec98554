"""Requests with large bodies."""

from __future__ import annotations

import json


def infer(nbytes):
    """A request whose body, JSON and tensor, has so many bytes."""
    tensor_bytes = nbytes - 200
    tensor = {"name": "I", "shape": [tensor_bytes // 4], "datatype": "FP32"}
    head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": tensor_bytes}}]}).ljust(200).encode()
    return (
        b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 200\r\n"
        b"Content-Length: %d\r\n\r\n%b%b" % (nbytes, head, bytes(tensor_bytes))
    )
