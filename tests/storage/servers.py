"""Real servers of stores on free ports, and a proxy between them and us that does harm when told to."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import http.server
import io
import json
import os
import re
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


@contextlib.contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A threaded HTTP server; yields its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Faults:
    """What the proxy does to answers.  cut and flip: offsets in the body of the next answers with at least that many.

    dead: every connection is closed at once; before: called with each GET's path before it is passed on; opaque_tags:
    ETags look like MD5s and are none, as with keys of KMS.
    """

    cut: list[int] = field(default_factory=list)
    flip: list[int] = field(default_factory=list)
    status: list[int] = field(default_factory=list)
    dead: bool = False
    listing_status: int = 0
    opaque_tags: bool = False
    before: Callable[[str], None] = lambda path: None
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def gets(self, ending: str) -> list[str]:
        """The Range headers, "" for none, of GETs of paths that end so."""
        return [span for verb, path, span in self.asked if verb == "GET" and path.endswith(ending)]


def proxy_handler(upstream: int, faults: Faults) -> type[http.server.BaseHTTPRequestHandler]:
    """A reverse proxy to a port of this machine."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def _pass(self) -> None:
            path = urlsplit(self.path).path
            with faults.lock:
                faults.asked.append((self.command, path, self.headers.get("Range", "")))
            if faults.dead:
                self.close_connection = True
                return
            listing = "list-type" in self.path
            if self.command == "GET" and not listing:
                faults.before(path)
            if (faults.status and not listing) or (faults.listing_status and listing):
                self.send_response(faults.listing_status or faults.status.pop(0))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            connection = http.client.HTTPConnection("127.0.0.1", upstream, timeout=60)
            with contextlib.closing(connection):
                length = int(self.headers.get("Content-Length", "0"))
                body = self.rfile.read(length) if length else None
                headers = dict(self.headers)
                if faults.opaque_tags and "if-match" in self.headers:
                    headers = {**headers, "if-match": _turned(headers.pop("if-match"))}
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() != "transfer-encoding" and (name.lower() != "content-length" or not listing):
                        self.send_header(name, _turned(value) if faults.opaque_tags else value)
                data = answer.read()
                if faults.opaque_tags:
                    self.send_header("x-amz-server-side-encryption", "aws:kms")
                    data = _turned(data.decode()).encode() if listing else data
                if listing or answer.getheader("Content-Length") is None:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self._send(bytearray(data), listing)

        def _send(self, data: bytearray, listing: bool) -> None:
            with faults.lock:
                if not listing and faults.flip and len(data) > faults.flip[0]:
                    data[faults.flip.pop(0)] ^= 1
                cut = faults.cut.pop(0) if not listing and faults.cut and len(data) > faults.cut[0] else None
            with contextlib.suppress(OSError):  # who looks only at heads leaves early
                self.wfile.write(data if cut is None else data[:cut])
                self.wfile.flush()
            if cut is not None:
                self.close_connection = True

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _pass

    return Proxy


def _turned(text: str) -> str:
    """With every MD5 backwards, which is undone by itself."""
    return re.sub(r"[0-9a-f]{32}", lambda found: found[0][::-1], text)


def web_handler(content: dict[str, bytes], tags: bool = True) -> type[http.server.BaseHTTPRequestHandler]:
    """A server of files with ranges, ETags and If-Match."""

    class Files(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            data = content.get(urlsplit(self.path).path)
            if data is None:
                self.send_error(404)
                return
            tag = '"' + hashlib.md5(data).hexdigest()[:12] + '"'
            if self.headers.get("If-Match", tag) != tag:
                self.send_error(412)
                return
            start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if tags else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            if tags:
                self.send_header("ETag", tag)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data[start:])

        do_HEAD = do_GET

    return Files


def tar_of(files: dict[str, str], ending: str = ".tar.gz") -> bytes:
    """An archive with these files."""
    out = io.BytesIO()
    if ending == ".zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
            for path, text in files.items():
                zipped.writestr(path, text)
        return out.getvalue()
    with tarfile.open(fileobj=out, mode="w:gz" if ending.endswith("gz") else "w") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


@dataclass
class Hub:
    """A Hugging Face Hub with one repository: what its client asks of one.  large: paths that are in LFS."""

    repo: str
    files: dict[str, bytes]
    large: tuple[str, ...] = ()
    token: str = ""
    damaged: str = ""
    asked: list[str] = field(default_factory=list)

    @property
    def commit(self) -> str:
        """Changes with the files."""
        digest = hashlib.sha1()
        for path, data in sorted(self.files.items()):
            digest.update(path.encode() + data)
        return digest.hexdigest()

    def handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        """Its server."""
        hub = self

        class Api(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def _json(self, value: object, status: int = 200, **headers: str) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                for name, text in headers.items():
                    self.send_header(name.replace("_", "-"), text)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def do_GET(self) -> None:
                path = unquote(urlsplit(self.path).path)
                hub.asked.append(path)
                if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                    self._json({"error": "Repository not found"}, 401, X_Error_Code="RepoNotFound")
                elif path.startswith(f"/api/models/{hub.repo}/tree/"):
                    inside = path.removeprefix(f"/api/models/{hub.repo}/tree/").partition("/")[2]
                    self._json(hub.tree(inside))
                elif path.startswith(f"/api/models/{hub.repo}"):
                    revision = path.removeprefix(f"/api/models/{hub.repo}").removeprefix("/revision/") or "main"
                    if revision not in ("main", "v1", hub.commit):
                        self._json({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
                    else:
                        self._json({"id": hub.repo, "sha": hub.commit, "siblings": [], "tags": []})
                elif path.startswith(f"/{hub.repo}/resolve/"):
                    self._content(path.removeprefix(f"/{hub.repo}/resolve/").partition("/")[2])
                else:
                    self._json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")

            def _content(self, path: str) -> None:
                data = bytearray(hub.files[path])
                if path == hub.damaged:
                    data[0] ^= 1
                start = int(self.headers.get("Range", "bytes=0-")[6:-1])
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(data) - start))
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                self.end_headers()
                self.wfile.write(data[start:])

            do_HEAD = do_GET

        return Api

    def tree(self, inside: str) -> list[dict[str, object]]:
        """The recursive listing of a folder."""
        found: list[dict[str, object]] = []
        for path, data in self.files.items():
            if inside and not path.startswith(inside + "/"):
                continue
            oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            item: dict[str, object] = {"type": "file", "path": path, "size": len(data), "oid": oid}
            if path in self.large:
                item["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            found.append(item)
        return found


def contents(folder: Path) -> dict[str, str]:
    """What a person sees in a folder, links followed."""
    return {
        str(Path(parent, name).relative_to(folder)): Path(parent, name).read_text()
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
    }
