"""Versions of models in an MLflow registry, over its REST API.  Layer 3 (storage).

The registry says where a version's files are; they come from there: from the tracking server itself, an object store or
a local folder.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from tisfast import limits
from tisfast.storage.http_source import Web
from tisfast.storage.location import Location, Registered
from tisfast.storage.source import Changed, Refused, RemoteFile, Unreachable

API: Final = "/api/2.0/mlflow"
ARTIFACTS: Final = "/api/2.0/mlflow-artifacts/artifacts"


def tracking_server(location: Location, variables: Mapping[str, str]) -> tuple[str, Web]:
    """Its URL and a client with the credentials of the environment.  Raises Refused."""
    uri = variables.get("MLFLOW_TRACKING_URI", "").rstrip("/")
    if not uri.startswith(("http://", "https://")):
        raise Refused(f"--model-repository={location.shown}: MLFLOW_TRACKING_URI is {uri!r}, not the URL of a server",
                      key="MLFLOW_TRACKING_URI", hint="set it to http[s]://HOST[:PORT]")  # fmt: skip
    if variables.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() == "true":
        raise Refused("MLFLOW_TRACKING_INSECURE_TLS is not served", key="MLFLOW_TRACKING_INSECURE_TLS",
                      hint="name the server's authority with MLFLOW_TRACKING_SERVER_CERT_PATH")  # fmt: skip
    headers = {}
    if token := variables.get("MLFLOW_TRACKING_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    elif user := variables.get("MLFLOW_TRACKING_USERNAME"):
        secret = f"{user}:{variables.get('MLFLOW_TRACKING_PASSWORD', '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
    return uri, Web(headers, authorities=variables.get("MLFLOW_TRACKING_SERVER_CERT_PATH", ""))


def artifact_uri(web: Web, uri: str, location: Location, place: Registered) -> str:
    """Where the files of the version are.  Raises Refused or Unreachable."""
    version = place.version or _version(web, uri, location, place)
    query = urlencode({"name": place.model, "version": version})
    answer = web.json(f"{uri}{API}/model-versions/get-download-uri?{query}")
    found = answer.get("artifact_uri", "")
    if not found:
        raise Refused(f"{location.shown}: the registry names no files for version {version}", key="model-repository")
    return str(found)


def _version(web: Web, uri: str, location: Location, place: Registered) -> str:
    if place.alias:
        query = urlencode({"name": place.model, "alias": place.alias})
        return str(web.json(f"{uri}{API}/registered-models/alias?{query}")["model_version"]["version"])
    stages = [] if place.stage == "latest" else [place.stage]
    body = {"name": place.model, "stages": stages} if stages else {"name": place.model}
    found = web.json(f"{uri}{API}/registered-models/get-latest-versions", body).get("model_versions", [])
    if not found:
        raise Refused(f"{location.shown}: model '{place.model}' has no version in stage '{place.stage}'",
                      key="model-repository", hint="name a version or an alias: mlflow:/MODEL@ALIAS")  # fmt: skip
    return str(max(int(version["version"]) for version in found))


class ProxiedArtifacts:
    """The Source of files that the tracking server itself hands out (mlflow-artifacts:/)."""

    def __init__(self, web: Web, tracking: str, uri: str, shown: str) -> None:
        parts = urlsplit(uri)
        scheme = urlsplit(tracking).scheme
        self._server = f"{scheme}://{parts.netloc}" if parts.netloc else tracking
        self._root = parts.path.strip("/")
        self._web = web
        self._shown = shown

    def files(self) -> list[RemoteFile]:
        """All files below it, a request for each folder."""
        found: list[RemoteFile] = []
        folders, asked = [""], 0
        while folders:
            folder, asked = folders.pop(), asked + 1
            path = f"{self._root}/{folder}".strip("/")
            answer: Any = self._web.json(f"{self._server}{ARTIFACTS}?{urlencode({'path': path})}")
            for item in answer.get("files", []):
                name = f"{folder}/{item['path']}".strip("/")
                if item.get("is_dir"):
                    folders.append(name)
                    continue
                found.append(self._file(name, int(item.get("file_size", 0))))
            if len(found) + len(folders) + asked > limits.STORAGE_FILES_MAX:
                raise Refused(f"{self._shown} has more than {limits.STORAGE_FILES_MAX} files and folders",
                              key="model-repository")  # fmt: skip
        return found

    def _file(self, name: str, size: int) -> RemoteFile:
        """The registry never changes a version's files, so their place is as good as a tag."""
        key = f"{self._root}/{name}"
        return RemoteFile(name, key, size, key)

    def read(self, file: RemoteFile, offset: int) -> tuple[int, Iterator[bytes]]:
        """See Source.read.  From 0, always: the server gives nothing to tell one content from another."""
        del offset
        return self._web.read(f"{self._server}{ARTIFACTS}/{quote(file.key)}", file, 0, "")

    def with_digests(self, file: RemoteFile) -> RemoteFile:
        """The file as it is: nothing more can be learnt of it."""
        return file

    def is_certain(self, file: RemoteFile, md5: str) -> bool:
        """No MD5 is known."""
        del file, md5
        return True


class LocalArtifacts:
    """The Source of files that lie on this machine, where the registry keeps them in a folder."""

    def __init__(self, folder: Path, shown: str) -> None:
        """Raises Refused when there is no such folder here."""
        self._folder = folder
        self._shown = shown
        if not folder.is_dir():
            raise Refused(f"{shown}: the registry keeps its files in {folder}, which is not on this machine",
                          key="model-repository", hint="start it with mlflow server --serve-artifacts")  # fmt: skip

    def files(self) -> list[RemoteFile]:
        """All regular files below it."""
        found = []
        for parent, _, names in os.walk(self._folder):
            found += [self._file(Path(parent, name)) for name in names]
            if len(found) > limits.STORAGE_FILES_MAX:
                raise Refused(f"{self._shown} has more than {limits.STORAGE_FILES_MAX} files", key="model-repository")
        return found

    def read(self, file: RemoteFile, offset: int) -> tuple[int, Iterator[bytes]]:
        """See Source.read."""
        return offset, self._chunks(file, offset)

    def _file(self, path: Path) -> RemoteFile:
        try:
            status = path.stat()
        except OSError as error:
            raise Unreachable(f"{self._shown}: {path}: {error.strerror}") from error
        tag = f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"
        return RemoteFile(path.relative_to(self._folder).as_posix(), str(path), status.st_size, tag)

    def _chunks(self, file: RemoteFile, offset: int) -> Iterator[bytes]:
        try:
            with open(file.key, "rb") as opened:
                opened.seek(offset)
                while chunk := opened.read(limits.STORAGE_CHUNK_BYTES):
                    yield chunk
            if self._file(Path(file.key)).tag != file.tag:
                raise Changed(f"{self._shown}: {file.key} changed while it was read")
        except OSError as error:
            raise Unreachable(f"{self._shown}: {error}") from error

    def with_digests(self, file: RemoteFile) -> RemoteFile:
        """The file as it is: nothing more can be learnt of it."""
        return file

    def is_certain(self, file: RemoteFile, md5: str) -> bool:
        """No MD5 is known."""
        del file, md5
        return True


def local_folder(uri: str) -> Path | None:
    """The folder that an artifact URI names on this machine, if it does."""
    if uri.startswith("/"):
        return Path(uri)
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None
