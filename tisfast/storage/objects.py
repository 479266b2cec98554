"""Folders of object stores (S3, GCS, Azure), through obstore: the extra `storage`.  Layer 3 (storage)."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from email.message import Message
from typing import Any, Final

from tisfast import limits
from tisfast.errors import TisError
from tisfast.storage.credentials import options_for
from tisfast.storage.http_source import Web, facts
from tisfast.storage.location import Bucket, Location
from tisfast.storage.source import Changed, Refused, RemoteFile, Unreachable, md5_of_tag

log = logging.getLogger("tisfast.storage")
SIGNED_SECONDS: Final = 60
NO_MD5: Final = ("aws:kms", "aws:kms:dsse")
"""Encryptions of S3 with which an object's ETag is no MD5."""
STATUS: Final = re.compile(r"\bstatus code: (4(?!08|29)\d\d)\b")
ANSWER: Final = re.compile(r"status code: (\d+ [\w ]+).*<Code>([^<]*)</Code>\s*<Message>([^<]*)")
RIGHTS: Final = "the credentials lack the right to list or read it; see 'tisfast docs storage'"
NOBODY: Final = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket"
METADATA_HOSTS: Final = ("169.254.169.254", "169.254.170.", "metadata.google.internal")


class ObjectStore:
    """The Source of a bucket's folder."""

    def __init__(self, location: Location, bucket: Bucket, variables: Mapping[str, str]) -> None:
        """Raises ConfigError when the credentials cannot be made out, or obstore is missing."""
        self._obstore, stores = _library(location)
        options = options_for(location, bucket, variables)
        self._shown = location.shown
        self._prefix = bucket.path
        self._kind = bucket.kind
        kinds = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}
        client: dict[str, Any] = {
            "timeout": timedelta(seconds=limits.STORAGE_FILE_SECONDS_MAX),
            "read_timeout": timedelta(seconds=limits.STORAGE_IDLE_SECONDS_MAX),
            "connect_timeout": timedelta(seconds=limits.STORAGE_CONNECT_SECONDS_MAX),
        }
        if options.plain_http:
            client["allow_http"] = True
        retry = {
            "max_retries": limits.STORAGE_REQUEST_RETRIES,
            "retry_timeout": timedelta(seconds=limits.STORAGE_IDLE_SECONDS_MAX),
        }
        try:
            self._store = kinds[bucket.kind](
                bucket.name,
                config=options.config,
                client_options=client,
                retry_config=retry,
                credential_provider=options.provider,
            )
        except (self._obstore.exceptions.BaseError, ValueError) as error:
            raise self._refused(_line(error)) from error

    def files(self) -> list[RemoteFile]:
        """All objects below the URL, but for the markers that some tools make for folders."""
        found: list[RemoteFile] = []
        start = len(self._prefix) + 1 if self._prefix else 0
        with self._told():
            for batch in self._obstore.list(self._store, prefix=self._prefix or None, chunk_size=1000):
                for item in batch:
                    path, tag = item["path"][start:], item["e_tag"] or ""
                    if not path or (item["size"] == 0 and path.endswith("_$folder$")):
                        continue
                    found.append(RemoteFile(path, item["path"], item["size"], tag, md5=md5_of_tag(tag)))
                if len(found) > limits.STORAGE_FILES_MAX:
                    raise Refused(f"{self._shown} has more than {limits.STORAGE_FILES_MAX} files",
                                  key="model-repository", hint="name a folder that holds models only")  # fmt: skip
        markers = {path for file in found for path in _folders(file.path)}
        return [file for file in found if file.size or file.path not in markers]

    def read(self, file: RemoteFile, offset: int) -> tuple[int, Iterator[bytes]]:
        """See Source.read."""
        options: dict[str, Any] = {"if_match": file.tag} if file.tag else {}
        if offset and file.tag:
            options["range"] = {"offset": offset}
        with self._told():
            result = self._obstore.get(self._store, file.key, options=options)
            if result.meta["size"] != file.size:
                raise Changed(f"{self._shown}: {file.path} changed while it was downloaded")
            return result.range[0], self._chunks(result)

    def _chunks(self, result: Any) -> Iterator[bytes]:
        with self._told():
            yield from result.stream(min_chunk_size=limits.STORAGE_CHUNK_BYTES)

    def with_digests(self, file: RemoteFile) -> RemoteFile:
        """Azure lists no checksums, and tells an MD5 of most blobs when it is asked for one."""
        if self._kind != "az":
            return file
        headers = self._headers(file)
        return file if headers is None else replace(file, md5=facts(headers).md5)

    def is_certain(self, file: RemoteFile, md5: str) -> bool:
        """With a key of KMS the ETag looks like an MD5 and is none; only a request's headers tell."""
        headers = self._headers(file) if self._kind == "s3" else None
        if headers is None:
            return True
        encrypted = headers.get("x-amz-server-side-encryption", "") in NO_MD5
        encrypted = encrypted or "x-amz-server-side-encryption-customer-algorithm" in headers
        return not encrypted or facts(headers).md5 not in ("", md5)

    def _headers(self, file: RemoteFile) -> Message | None:
        """obstore keeps headers to itself, so by a signed request of our own; None where we may not sign."""
        try:
            verb = "GET" if self._kind == "az" else "HEAD"  # Azure signs rights, to read here, and not verbs
            signed = self._obstore.sign(self._store, verb, file.key, timedelta(seconds=SIGNED_SECONDS))
            with Web().open(signed, method="HEAD") as answer:
                headers: Message = answer.headers
                return headers
        except (TisError, self._obstore.exceptions.BaseError, ValueError) as error:
            log.debug("%s: no headers of %s: %s", self._shown, file.path, error)
            return None

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """obstore's errors as ours, in one line."""
        errors = self._obstore.exceptions
        try:
            yield
        except errors.PreconditionError as error:
            raise Changed(f"{self._shown} changed while it was downloaded") from error
        except FileNotFoundError as error:
            raise self._refused("there is no such bucket, folder or object") from error
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise self._refused(_line(error), RIGHTS) from error
        except (errors.InvalidPathError, errors.UnknownConfigurationKeyError, ValueError) as error:
            raise self._refused(_line(error)) from error
        except errors.BaseError as error:
            text = _line(error)
            status = STATUS.search(text)
            if any(host in text for host in METADATA_HOSTS):
                raise self._refused(
                    f"no credentials were found, and this machine has no role: {text}", NOBODY
                ) from error
            if status is not None and status[1] in ("401", "403"):
                raise self._refused(text, RIGHTS) from error
            if status is not None or "without LOCATION" in text:  # how obstore says that the region is wrong
                raise self._refused(text) from error
            raise Unreachable(f"{self._shown}: {text}") from error

    def _refused(self, why: str, hint: str = "") -> Refused:
        return Refused(f"{self._shown}: {why}", key="model-repository", hint=hint)


def _library(location: Location) -> tuple[Any, Any]:
    try:
        import obstore  # noqa: PLC0415 - an extra
        from obstore import exceptions, store  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise Refused(f"--model-repository={location.shown} needs obstore, which is not installed",
                      key="model-repository", hint="pip install 'tisfast[storage]'") from error  # fmt: skip
    return obstore, store


def _folders(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


def _line(error: Exception) -> str:
    """An error in one line: what the store said, where it did; else without the debug form that follows it."""
    text = " ".join(str(error).partition("\n\nDebug source")[0].split())
    said = ANSWER.search(text)
    if said is not None:
        text = f"status code: {said[1]}: {said[2]}: {said[3]}"
    return text[: limits.STORAGE_ERROR_TEXT_BYTES]
