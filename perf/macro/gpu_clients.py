"""The least client of a server with a GPU: one connection, requests of the same bytes, memory on the GPU."""

from __future__ import annotations

import base64
import json
import re
import socket
import urllib.request
from typing import Any, Final

from perf.figures import RunFailed

SECONDS_MAX: Final = 60
_ANSWER_BYTES_MAX: Final = 1 << 16


def post(address: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One POST of JSON, or a GET without a body; its answer."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://{address}/v2/{path}", data, SECONDS_MAX) as answer:
        found = answer.read()
    return dict(json.loads(found)) if found else {}


def register_cuda(address: str, name: str, handle: bytes, nbytes: int) -> None:
    """Memory on GPU 0 that the server may use from now on."""
    raw = {"b64": base64.b64encode(handle).decode()}
    post(address, f"cudasharedmemory/region/{name}/register", {"raw_handle": raw, "device_id": 0, "byte_size": nbytes})


def register_system(address: str, name: str, key: str, nbytes: int) -> None:
    """The same with a shared memory object."""
    post(address, f"systemsharedmemory/region/{name}/register", {"key": key, "offset": 0, "byte_size": nbytes})


def tensor(region: str, nbytes: int, name: str = "X", **more: Any) -> dict[str, Any]:
    """A tensor in a region."""
    return {"name": name, "parameters": {"shared_memory_region": region, "shared_memory_byte_size": nbytes}} | more


class Caller:
    """Sends one inference request again and again, over one connection."""

    def __init__(self, address: str, model: str, given: dict[str, Any], wanted: dict[str, Any]) -> None:
        """given, wanted: an input and an output, as in KServe's JSON."""
        body = json.dumps({"inputs": [given], "outputs": [wanted]}).encode()
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """The connection."""
        self._socket.close()

    def __call__(self) -> None:
        """Ask once, and read the answer, which is short.  Raises RunFailed unless it is 200."""
        self._socket.sendall(self._request)
        answer = self._socket.recv(_ANSWER_BYTES_MAX)
        while not _is_whole(answer):
            more = self._socket.recv(_ANSWER_BYTES_MAX)
            if not more or len(answer) > _ANSWER_BYTES_MAX:
                raise RunFailed(f"no whole answer: {answer[:500]!r}")
            answer += more
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RunFailed(f"a bad answer: {answer[:500]!r}")


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    return bool(end and length and len(body) >= int(length[1]))
