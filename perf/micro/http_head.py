"""One request head: parsed anew, and found to be the last one again (what the connection does with a memcmp)."""

from __future__ import annotations

from timeit import timeit

from tisfast.engine.registry import Registry
from tisfast.operations.routes import Routes
from tisfast.operations.service import Service
from tisfast.wire import head
from tisfast.wire.compress import choose

N = 50_000
INFER = (
    b"POST /v2/models/add_sub/infer HTTP/1.1\r\nHost: localhost:8000\r\nAccept: */*\r\n"
    b"Inference-Header-Content-Length: 300\r\nContent-Type: application/octet-stream\r\nContent-Length: 332\r\n\r\n"
)


def main() -> None:
    again, live = bytes(bytearray(INFER)), head.parse(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
    routes = Routes(Service(Registry(), server_id="triton", server_version="0"))
    print(f"http_head_new {timeit(lambda: head.parse(INFER), number=N) / N * 1e9:.1f}")
    print(f"http_head_repeated {timeit(lambda: again == INFER, number=N) / N * 1e9:.1f}")
    print(f"http_head_accept_encoding {timeit(lambda: choose('gzip, deflate'), number=N) / N * 1e9:.1f}")
    print(f"http_head_health_answer {timeit(lambda: routes.handle(live, b''), number=N) / N * 1e9:.1f}")


if __name__ == "__main__":
    main()
