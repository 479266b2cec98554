"""A server of OpenAI's endpoints whose answers take a known time, as a process of its own.

Each request says in its key "stub" what it gets: first_ms, gap_ms, tokens, usage, fault.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextmanager
def openai_stub() -> Iterator[int]:
    """Gives its port."""
    command = [sys.executable, "-m", "tests.bench.openai_stub"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def passed(milliseconds: float) -> None:
    """The time that an answer takes."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(milliseconds / 1000, over.set_result, None)
    await over


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def delta(chat: bool, text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}} if chat else {"index": 0, "text": text}]}


async def stream(writer: asyncio.StreamWriter, chat: bool, asked: dict[str, Any]) -> None:
    fault, tokens = asked.get("fault", ""), asked.get("tokens", 4)
    writer.write(STREAM_HEAD + chunk(b": a comment\n\n"))
    if chat:
        writer.write(chunk(event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})))
    for number in range(tokens):
        await passed(asked.get("first_ms" if number == 0 else "gap_ms", 0))
        if fault == "error" and number == 1:
            writer.write(chunk(event({"error": {"message": "out of memory", "code": 500}})))
        if fault == "drop" and number == 1:
            writer.close()
            return
        text = event(delta(chat, f"word{number} "))
        if fault == "cut":  # in the middle of an event, and of its line ends
            text = text.replace(b"\n", b"\r\n")
            for at in range(len(text)):
                writer.write(chunk(text[at : at + 1]))
        else:
            writer.write(chunk(text))
    if asked.get("usage"):
        writer.write(chunk(event({"choices": [], "usage": {"completion_tokens": 2 * tokens, "prompt_tokens": 7}})))
    if fault != "unfinished":
        writer.write(chunk(b"data: [DONE]\n\n"))
    writer.write(chunk(b""))


def answer(path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    tokens = asked.get("tokens", 4)
    if asked.get("fault") == "status":
        return 429, {"error": {"message": "too many requests", "type": "rate_limit"}}
    if asked.get("fault") == "error":
        return 200, {"error": {"message": "out of memory"}}
    if path.endswith("embeddings"):
        return 200, {"object": "list", "data": [{"embedding": [0.5] * 8}], "usage": {"prompt_tokens": 7}}
    if path.endswith("completions"):
        usage = {"usage": {"completion_tokens": tokens, "prompt_tokens": 7}} if asked.get("usage") else {}
        return 200, {"choices": [{"message": {"role": "assistant", "content": "all"}}], **usage}
    return 404, {"object": "error", "message": f"no {path}"}


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        path = head.split(" ", 2)[1]
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = json.loads(await reader.readexactly(int(fields["content-length"])))
        asked = body.get("stub", {})
        if body.get("stream") and asked.get("fault") != "status":
            await stream(writer, "chat" in path, asked)
            continue
        await passed(asked.get("first_ms", 0))
        status, found = answer(path, asked)
        text = json.dumps({**found, "seen": body}).encode()
        lines = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        writer.write(lines.encode() + text)


async def main() -> None:
    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
