"""Folders of Hugging Face repositories, listed by huggingface_hub: the extra `hf`.  Layer 3 (storage).

The files themselves come over HTTP as everything else does, so that they are resumed and verified alike: each has a
SHA-256 (large files) or the SHA-1 of git's objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tisfast import limits
from tisfast.storage.http_source import Web
from tisfast.storage.location import HubRepo, Location
from tisfast.storage.source import Refused, RemoteFile, Unreachable


class HubFolder:
    """The Source of a folder of one commit."""

    def __init__(self, location: Location, place: HubRepo) -> None:
        """Raises Refused when huggingface_hub is missing."""
        try:
            import huggingface_hub  # noqa: PLC0415 - an extra
            from huggingface_hub import errors, utils  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise Refused(f"--model-repository={location.shown} needs huggingface_hub, which is not installed",
                          key="model-repository", hint="pip install 'tisfast[hf]'") from error  # fmt: skip
        self._hub: Any = huggingface_hub
        self._errors: Any = errors
        tools: Any = utils
        self._headers: dict[str, str] = tools.build_hf_headers(library_name="tisfast")
        self._location = location
        self._place = place
        self._commit = ""

    def files(self) -> list[RemoteFile]:
        """All files below the URL, of the commit that the revision is now."""
        try:
            return self._files()
        except self._errors.OfflineModeIsEnabled as error:
            raise Unreachable(f"{self._location.shown}: HF_HUB_OFFLINE is set") from error
        except self._errors.HfHubHTTPError as error:
            response = getattr(error, "response", None)
            status = getattr(response, "status_code", 0)
            text = " ".join(str(error).split())[: limits.STORAGE_ERROR_TEXT_BYTES]
            if status >= 500 or status == 429:
                raise Unreachable(f"{self._location.shown}: {text}") from error
            raise Refused(f"{self._location.shown}: {text}", key="model-repository",
                          hint="a private or gated repository needs HF_TOKEN") from error  # fmt: skip
        except self._errors.HFValidationError as error:
            raise Refused(f"{self._location.shown}: {error}", key="model-repository") from error
        except OSError as error:
            raise Unreachable(f"{self._location.shown}: {error}") from error
        except Exception as error:
            if not type(error).__module__.startswith("httpx"):
                raise
            raise Unreachable(f"{self._location.shown}: {error}") from error

    def _files(self) -> list[RemoteFile]:
        place, api = self._place, self._hub.HfApi()
        seconds = limits.STORAGE_IDLE_SECONDS_MAX
        self._commit = api.repo_info(place.repo, revision=place.revision or None, timeout=seconds).sha
        found: list[RemoteFile] = []
        start = len(place.path) + 1 if place.path else 0
        for item in api.list_repo_tree(place.repo, place.path or None, recursive=True, revision=self._commit):
            if not isinstance(item, self._hub.hf_api.RepoFile):
                continue
            sha256 = item.lfs.sha256 if item.lfs else ""
            found.append(RemoteFile(item.path[start:], item.path, item.size, sha256 or item.blob_id, sha256,
                                    git_sha1="" if sha256 else item.blob_id))  # fmt: skip
            if len(found) > limits.STORAGE_FILES_MAX:
                raise Refused(f"{self._location.shown} has more than {limits.STORAGE_FILES_MAX} files")
        return found

    def read(self, file: RemoteFile, offset: int) -> tuple[int, Iterator[bytes]]:
        """See Source.read."""
        url = self._hub.hf_hub_url(self._place.repo, file.key, revision=self._commit)
        return Web(self._headers).read(url, file, offset, "")  # the digests tell; behind a redirect ETags are others

    def with_digests(self, file: RemoteFile) -> RemoteFile:
        """The file as it is: its digests were read with the list."""
        return file

    def is_certain(self, file: RemoteFile, md5: str) -> bool:
        """There are better digests than MD5 here."""
        del file, md5
        return True
