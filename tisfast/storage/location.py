"""URLs of model repositories and of single models: text to values.  No I/O.  Layer 3 (storage)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

from tisfast.errors import ConfigError

FORMS: Final = (
    "s3://BUCKET/PATH, s3://[http[s]://]HOST:PORT/BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, "
    "as://ACCOUNT/CONTAINER/PATH, https://HOST/ARCHIVE.tar.gz or .zip, hf://OWNER/REPO[@REVISION][/PATH], "
    "mlflow:/MODEL/VERSION, mlflow:/MODEL@ALIAS"
)
ARCHIVES: Final = (".tar.gz", ".tgz", ".tar", ".zip")
_SCHEME: Final = re.compile(r"(?:([\w.-]+)=)?([A-Za-z][A-Za-z0-9+.-]*):/(.*)", re.DOTALL)
_S3_HOST: Final = re.compile(r"(https?://)?([0-9A-Za-z.-]+|\[[0-9A-Fa-f:]+\]):([0-9]+)/(.*)", re.DOTALL)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_AZURE_HOST: Final = re.compile(r"([^./]+)\.(?:blob|dfs)\.core\.windows\.net")
_START: Final = r"([A-Za-z][A-Za-z0-9+.-]*:/+(?:https?:/+)?)(?!https?:/)"
# A password may hold a slash: what follows a colon, and is no port, is cut as far as the @.
_LOGIN: Final = re.compile(_START + r"(?:[^/]*@|[^/@:\[]*:(?!\d*(?:/|\Z))[^@]*@)", re.IGNORECASE)
_PASSWORD: Final = re.compile(_START + r"[^/@:\[]*:[^@]*@", re.IGNORECASE)
_AT_IN_NAMES: Final = ("abfs", "abfss", "mlflow", "models")  # CONTAINER@ACCOUNT, MODEL@ALIAS


@dataclass(frozen=True)
class Bucket:
    """A folder of an object store.  kind: s3, gs or az; endpoint and account: "" for the usual ones."""

    kind: str
    name: str
    path: str
    endpoint: str = ""
    account: str = ""


@dataclass(frozen=True)
class Archive:
    """A .tar.gz or .zip of a repository or a model.  sha256: that it must have, "" when the URL states none."""

    url: str
    sha256: str = ""


@dataclass(frozen=True)
class HubRepo:
    """A folder of a Hugging Face model repository.  revision: branch, tag or commit, "" for main."""

    repo: str
    revision: str
    path: str


@dataclass(frozen=True)
class Registered:
    """A version of a model in an MLflow registry; one of version, stage and alias is not ""."""

    model: str
    version: str = ""
    stage: str = ""
    alias: str = ""


Places: TypeAlias = Bucket | Archive | HubRepo | Registered


@dataclass(frozen=True)
class Location:
    """Where a repository or model is.

    text: as written, without NAME=; shown: the same without passwords and signatures, for messages; model: NAME of
    NAME=URL, which makes the whole of it one model; last: its name otherwise, if it is a model.
    """

    text: str
    shown: str
    place: Places
    model: str
    last: str

    @property
    def key(self) -> str:
        """The name in the cache."""
        return f"{self.model}={self.shown}" if self.model else self.shown


def parse(text: str) -> Location | None:
    """None for a local path.  Raises ConfigError for a URL that names nothing."""
    matched = _SCHEME.fullmatch(text)
    if matched is None:
        return None
    model, scheme, rest = matched[1] or "", matched[2].lower(), matched[3]
    readers: Mapping[str, Callable[[str, str], tuple[Places, str]]] = {
        "s3": _s3, "gs": _gs, "az": _az, "as": _as, "abfs": _abfs, "abfss": _abfs, "https": _web, "http": _web,
        "hf": _hub, "mlflow": _registered, "models": _registered,
    }  # fmt: skip
    reader = readers.get(scheme)
    if reader is None:
        raise _wrong(text, f"scheme '{scheme}' is not served")
    url = text[len(model) + 1 :] if model else text
    place, last = reader(url, rest)
    name = model or last
    if name in (".", "..") or "/" in name or "\0" in name:
        raise _wrong(url, f"'{name}' cannot be a model's name")
    return Location(url, _shown(url), place, model, last)


def _wrong(text: str, why: str) -> ConfigError:
    return ConfigError(f"--model-repository={_shown(text)}: {why}", key="model-repository", hint=f"forms: {FORMS}")


def _shown(text: str) -> str:
    """Without NAME=, user, password, query and fragment: signatures are secrets."""
    matched = _SCHEME.fullmatch(text)
    url = text[matched.start(2) :] if matched else text
    scheme = url.partition(":")[0].lower()
    url = (_PASSWORD if scheme in _AT_IN_NAMES else _LOGIN).sub(r"\1", url, count=1)
    if scheme not in ("https", "http"):
        return url.partition("?")[0].rstrip("/")
    try:
        parts = urlsplit(url)
    except ValueError:  # nobody knows what of it is a secret
        return f"{scheme}://..."
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _segments(url: str, rest: str) -> list[str]:
    """The parts of a path without empty ones, as Triton cleans it.  Raises ConfigError for `..`."""
    found = [part for part in rest.partition("?")[0].split("/") if part]
    if any(part in (".", "..") for part in found):
        raise _wrong(url, "'.' and '..' are no folders of a store")
    return found


def _bucket(url: str, kind: str, parts: list[str], endpoint: str = "", account: str = "") -> tuple[Bucket, str]:
    if not parts:
        raise _wrong(url, f"No {'container' if kind == 'az' else 'bucket'} name found in path")
    return Bucket(kind, parts[0], "/".join(parts[1:]), endpoint, account), parts[-1]


def _s3(url: str, rest: str) -> tuple[Bucket, str]:
    """Triton's form with a host has HTTP where it names no scheme."""
    hosted = _S3_HOST.fullmatch(rest.lstrip("/"))
    if hosted is None:
        return _bucket(url, "s3", _segments(url, rest))
    endpoint = f"{hosted[1] or 'http://'}{hosted[2]}:{hosted[3]}"
    return _bucket(url, "s3", _segments(url, hosted[4]), endpoint)


def _gs(url: str, rest: str) -> tuple[Bucket, str]:
    return _bucket(url, "gs", _segments(url, rest))


def _az(url: str, rest: str) -> tuple[Bucket, str]:
    return _bucket(url, "az", _segments(url, rest))


def _as(url: str, rest: str) -> tuple[Bucket, str]:
    parts = _segments(url, rest)
    if len(parts) < 2:
        raise _wrong(url, "it names no account and container")
    host = _AZURE_HOST.fullmatch(parts[0])
    return _bucket(url, "az", parts[1:], account=host[1] if host else parts[0])


def _abfs(url: str, rest: str) -> tuple[Bucket, str]:
    parts = _segments(url, rest)
    container, at, host = parts[0].partition("@") if parts else ("", "", "")
    account = _AZURE_HOST.fullmatch(host)
    if at and account is None:
        raise _wrong(url, f"'{host}' is no ACCOUNT.dfs.core.windows.net")
    return _bucket(url, "az", [container, *parts[1:]] if container else [], account=account[1] if account else "")


def _web(url: str, _rest: str) -> tuple[Archive, str]:
    try:
        parts = urlsplit(url)
        _ = parts.port  # read when it is asked for
    except ValueError as error:
        why = str(error).partition(" as ")[0]  # what follows is what stands for the port: part of a password, perhaps
        raise _wrong(url, f"it is no URL: {why}") from None
    name = unquote(parts.path).rstrip("/").rpartition("/")[2]
    ending = next((ending for ending in ARCHIVES if name.lower().endswith(ending)), "")
    if not parts.hostname or not ending or name == ending:
        raise _wrong(url, f"HTTP has no folders, so it must name an archive ({', '.join(ARCHIVES)})")
    key, _, digest = parts.fragment.partition("=")
    if parts.fragment and (key != "sha256" or not _SHA256.fullmatch(digest)):
        raise _wrong(url, f"'#{parts.fragment}' is not of the form #sha256=64 lower-case hexadecimal digits")
    if parts.scheme == "http" and not digest:
        raise _wrong(url, "what comes over http:// may have been changed on its way: use https://, or add #sha256=...")
    return Archive(urlunsplit(parts._replace(fragment="")), digest), name[: -len(ending)]


def _hub(url: str, rest: str) -> tuple[HubRepo, str]:
    parts = _segments(url, rest)
    if len(parts) < 2:
        raise _wrong(url, "it names no owner and repository")
    name, _, revision = parts[1].partition("@")
    if not name:
        raise _wrong(url, "it names no repository")
    return HubRepo(f"{parts[0]}/{name}", unquote(revision), "/".join(parts[2:])), parts[-1] if parts[2:] else name


def _registered(url: str, rest: str) -> tuple[Registered, str]:
    parts = _segments(url, rest)
    if len(parts) == 1 and "@" in parts[0]:
        model, _, alias = parts[0].rpartition("@")
    elif len(parts) == 2:
        model, alias = parts[0], parts[1].removeprefix("@") if parts[1].startswith("@") else ""
    else:
        raise _wrong(url, "it names no model and version, stage or @alias")
    model = unquote(model)
    if alias:
        return Registered(model, alias=alias), model
    if len(parts) != 2 or not model:
        raise _wrong(url, "it names no model and version, stage or @alias")
    which = parts[1]
    return (Registered(model, version=which) if which.isdecimal() else Registered(model, stage=which)), model
