"""Read over HTTP(S) with the standard library: ranges, redirects, checksums in headers.  Layer 3 (storage)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any, Final
from urllib.parse import urlsplit

from tisfast import limits
from tisfast.storage.location import Archive, Location
from tisfast.storage.source import Changed, Refused, RemoteFile, Unreachable

SECRETS: Final = ("Authorization", "Cookie", "Proxy-authorization")
BUSY: Final = (408, 425, 429)


class _SameHostSecrets(urllib.request.HTTPRedirectHandler):
    """Redirects to another host (object stores behind a hub) do not get our credentials; none leads from TLS."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        """Raises HTTPError where following would be wrong."""
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if redirected is None:
            return None
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if before.scheme == "https" and after.scheme != "https":
            raise urllib.error.HTTPError(newurl, code, "a redirect away from https is not followed", headers, fp)
        if before.netloc != after.netloc:
            for name in SECRETS:
                redirected.remove_header(name)
        return redirected


@dataclass(frozen=True)
class WebResponse:
    """Facts of a resource.  size: -1 when not said."""

    size: int
    tag: str
    sha256: str
    md5: str


class Web:
    """An HTTP client with headers of its own.  Any thread; proxies of the environment are used."""

    def __init__(self, headers: Mapping[str, str] | None = None, *, authorities: str = "") -> None:
        """headers: sent with every request, to the host that is named; authorities: PEM file, "" for the system's."""
        self._headers = dict(headers or {})
        context = ssl.create_default_context(cafile=authorities or None)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _SameHostSecrets())

    def open(
        self, url: str, headers: Mapping[str, str] | None = None, *, body: bytes | None = None, method: str = "GET"
    ) -> Any:
        """The response, which the caller closes.  Raises Unreachable, Changed (412, 416) or Refused."""
        request = urllib.request.Request(url, data=body, headers={**self._headers, **(headers or {})}, method=method)
        try:
            return self._opener.open(request, timeout=limits.STORAGE_IDLE_SECONDS_MAX)
        except urllib.error.HTTPError as error:
            with error:
                raise _told(url, error) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise Refused(f"{shown(url)}: its certificate is not trusted: {reason.verify_message}",
                              hint="SSL_CERT_FILE may name the authority's") from error  # fmt: skip
            raise Unreachable(f"{shown(url)}: {reason}") from error

    def json(self, url: str, body: object = None) -> Any:
        """A JSON answer, of a POST when there is a body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        with self.open(url, headers, body=data, method="GET" if data is None else "POST") as answer:
            try:
                text = answer.read(limits.STORAGE_ANSWER_BYTES_MAX + 1)
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"{shown(url)}: {error}") from error
        try:
            return json.loads(text)
        except ValueError as error:
            raise Unreachable(f"{shown(url)}: the answer is no JSON: {text[:80]!r}") from error

    def look(self, url: str) -> WebResponse:
        """The facts of the resource, by a GET that is broken off: signed URLs allow no HEAD."""
        with self.open(url) as answer:
            return facts(answer.headers)

    def read(self, url: str, file: RemoteFile, offset: int, tag: str) -> tuple[int, Iterator[bytes]]:
        """Source.read over HTTP.  tag: the ETag or time of change that the answer must have, "" for any."""
        known = file.sha256 or file.git_sha1
        headers = {"Range": f"bytes={offset}-"} if offset and (known or _is_strong(tag)) else {}
        if tag.startswith('"'):
            headers["If-Match"] = tag
        answer = self.open(url, headers)
        try:
            if answer.status == http.client.PARTIAL_CONTENT and not known and not facts(answer.headers).tag:
                answer.close()  # nothing tells of what these bytes are
                return self.read(url, file, 0, tag)
            begin = _checked(url, answer, file, offset, tag)
        except BaseException:
            answer.close()
            raise
        return begin, _chunks(url, answer)


def _is_strong(tag: str) -> bool:
    """Whether equal tags mean equal bytes."""
    return bool(tag) and not tag.startswith("W/")


def facts(headers: Message) -> WebResponse:
    """The facts of the whole resource, from headers."""
    length = headers.get("Content-Length", "")
    tag = headers.get("ETag") or headers.get("Last-Modified") or ""
    md5 = headers.get("Content-MD5") or headers.get("x-ms-blob-content-md5") or ""
    for value in headers.get_all("x-goog-hash", []):
        for each in value.split(","):
            name, _, text = each.strip().partition("=")
            md5 = text if name == "md5" else md5
    sha256 = _hex(headers.get("x-amz-checksum-sha256", "")) if "x-amz-checksum-type" not in headers else ""
    return WebResponse(int(length) if length.isdecimal() else -1, tag, sha256, _hex(md5))


def _hex(text: str) -> str:
    """Base64 to hexadecimal; "" for what is none."""
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        return ""


def _checked(url: str, answer: Any, file: RemoteFile, offset: int, tag: str) -> int:
    """The offset at which an answer begins.  Raises Changed when it is not of the file that was listed."""
    now = facts(answer.headers)
    if tag and now.tag and now.tag.removeprefix("W/") != tag.removeprefix("W/"):
        raise Changed(f"{shown(url)} changed while it was downloaded")
    if answer.status != http.client.PARTIAL_CONTENT:
        if now.size not in (-1, file.size):
            raise Changed(f"{shown(url)} changed while it was downloaded: from {file.size} to {now.size} bytes")
        return 0
    unit, _, rest = answer.headers.get("Content-Range", "").partition(" ")
    span, _, total = rest.partition("/")
    if unit != "bytes" or total not in ("*", str(file.size)) or span.partition("-")[0] != str(offset):
        raise Changed(f"{shown(url)} changed while it was downloaded: bytes {offset} on of {file.size} were asked for, "
                      f"and {rest!r} came")  # fmt: skip
    return offset


def _chunks(url: str, answer: Any) -> Iterator[bytes]:
    with contextlib.closing(answer):
        while True:
            try:
                chunk = answer.read(limits.STORAGE_CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"{shown(url)}: {error or type(error).__name__}") from error
            if not chunk:
                return
            yield chunk


def _told(url: str, error: urllib.error.HTTPError) -> Unreachable | Changed | Refused:
    """The error that an HTTP status is."""
    if error.code in (412, 416):
        return Changed(f"{shown(url)} changed while it was downloaded (status {error.code})")
    with contextlib.suppress(OSError, http.client.HTTPException):
        said = error.read(limits.STORAGE_ERROR_TEXT_BYTES).decode(errors="replace").strip()
        if error.code >= 500 or error.code in BUSY:
            return Unreachable(f"{shown(url)}: status {error.code} {error.reason}: {said}")
        return Refused(f"{shown(url)}: status {error.code} {error.reason}: {said}", key="model-repository")
    return Unreachable(f"{shown(url)}: status {error.code} {error.reason}")


def shown(url: str) -> str:
    """A URL without what may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class WebArchive:
    """The Source of an archive: one file."""

    def __init__(self, location: Location, archive: Archive) -> None:
        parts = urlsplit(archive.url)
        headers = {}
        if parts.username is not None:
            secret = f"{parts.username}:{parts.password or ''}"
            headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._archive = archive
        self._location = location
        self._web = Web(headers)
        self._tag = ""

    def files(self) -> list[RemoteFile]:
        """The archive itself."""
        now = self._web.look(self._url)
        if now.size < 0:
            raise Refused(f"{self._location.shown}: the server does not say how long it is (Content-Length)",
                          key="model-repository")  # fmt: skip
        name = self._location.shown.rpartition("/")[2]
        sha256 = self._archive.sha256 or now.sha256
        self._tag = now.tag
        return [RemoteFile(name, self._url, now.size, now.tag or sha256, sha256, now.md5)]

    def read(self, file: RemoteFile, offset: int) -> tuple[int, Iterator[bytes]]:
        """See Source.read."""
        return self._web.read(self._url, file, offset, self._tag)

    def with_digests(self, file: RemoteFile) -> RemoteFile:
        """The file as it is: its digests were read with the list."""
        return file

    def is_certain(self, file: RemoteFile, md5: str) -> bool:
        """An MD5 of a header is always certain."""
        del file, md5
        return True
