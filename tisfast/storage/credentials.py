"""Triton's credential conventions for object stores: settings to options of obstore.  Layer 3 (storage).

What is not said here obstore finds by itself: AWS_* variables, web identity, container and instance roles; Google's
application default credentials; Azure's service principals, federated tokens, SAS tokens and managed identities.
"""

from __future__ import annotations

import configparser
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tisfast.errors import ConfigError
from tisfast.storage.location import Bucket, Location

FILE: Final = "TRITON_CLOUD_CREDENTIAL_PATH"
SECTIONS: Final = {"s3": "s3", "gs": "gs", "az": "as"}
AWS_ELSEWHERE: Final = (
    "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE",
)  # fmt: skip
AZURE_ELSEWHERE: Final = (
    "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY", "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE", "AZURE_USE_AZURE_CLI", "AZURE_STORAGE_USE_EMULATOR",
)  # fmt: skip
AUTH_TYPES: Final = ("key", "managed_identity", "default")
EMULATED_ACCOUNT: Final = "devstoreaccount1"
METADATA_HOST: Final = "metadata.google.internal"
Keys = dict[str, "str | None"]


@dataclass(frozen=True)
class StoreOptions:
    """For obstore's constructors.  provider: gives credentials instead of everything that obstore would look for."""

    config: dict[str, Any] = field(default_factory=dict)
    provider: Callable[[], Any] | None = None
    plain_http: bool = False


def options_for(location: Location, bucket: Bucket, variables: Mapping[str, str]) -> StoreOptions:
    """How to open this bucket.  Raises ConfigError."""
    entry = _entry(location, bucket, variables)
    readers = {"s3": _s3, "gs": _gs, "az": _az}
    return readers[bucket.kind](bucket, entry, variables)


def _entry(location: Location, bucket: Bucket, variables: Mapping[str, str]) -> Any:
    """The entry of the credential file with the longest prefix of the URL; None without such a file."""
    path = variables.get(FILE, "")
    if not path:
        return None
    try:
        sections = json.loads(Path(path).read_bytes())
        section = sections.get(SECTIONS[bucket.kind], {})
        prefixes = [prefix for prefix in section if _spelled(location, bucket).startswith(prefix)]
        prefixes += [prefix for prefix in section if location.text.startswith(prefix)]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{FILE}={path} cannot be used: {error}", hint="see 'tisfast docs storage'") from error
    if not prefixes:
        hint = f'add an entry to its section "{SECTIONS[bucket.kind]}"; the prefix "" fits all'
        raise ConfigError(f"Cannot match credential for path  {location.shown}", file=path, hint=hint)
    return section[max(prefixes, key=len)]


def _spelled(location: Location, bucket: Bucket) -> str:
    """Azure's URL as Triton writes it, which az:// and abfs:// are other forms of."""
    return f"as://{bucket.account}/{bucket.name}/{bucket.path}" if bucket.kind == "az" else location.text


def _object(entry: Any, kind: str) -> Mapping[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        what = f"{FILE}: an entry of section {kind!r} is no object of texts"
        raise ConfigError(what, hint="see 'tisfast docs storage'")
    return entry


# ---- S3


def _s3(bucket: Bucket, entry: Any, variables: Mapping[str, str]) -> StoreOptions:
    endpoint = bucket.endpoint or variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL", "")
    config: dict[str, Any] = {}
    if endpoint:
        config["endpoint"] = endpoint
        if "AWS_ENDPOINT_URL_S3" in variables:  # which obstore prefers to `endpoint`
            config["aws_endpoint_url_s3"] = endpoint
    if bucket.endpoint:
        config["virtual_hosted_style_request"] = False  # as Triton
    keys, region = _aws_keys(entry, variables)
    if region:
        config["region"] = region
    elif "AWS_REGION" not in variables and "AWS_DEFAULT_REGION" in variables:
        config["region"] = variables["AWS_DEFAULT_REGION"]
    provider = None if keys is None else lambda: {**keys, "expires_at": None}
    return StoreOptions(config, provider, endpoint.startswith("http://"))


def _aws_keys(entry: Any, variables: Mapping[str, str]) -> tuple[Keys | None, str]:
    """Keys and region that are said; (None, "") leaves both to obstore."""
    if entry is not None:
        said = _object(entry, "s3")
        if said.get("secret_key") and said.get("key_id"):
            return _keys(said["key_id"], said["secret_key"], said.get("session_token")), said.get("region", "")
        if said.get("profile"):
            return _profile(said["profile"], variables)
        return None, said.get("region", "")
    if any(name in variables for name in AWS_ELSEWHERE):
        return None, ""
    if "AWS_PROFILE" in variables:
        return _profile(variables["AWS_PROFILE"], variables)
    return _profile("default", variables, required=False)


def _keys(key: str, secret: str, token: str | None) -> Keys:
    return {"access_key_id": key, "secret_access_key": secret, "token": token or None}


def _profile(name: str, variables: Mapping[str, str], *, required: bool = True) -> tuple[Keys | None, str]:
    """A profile of the AWS command line that has keys.  Raises ConfigError for others."""
    home = Path(variables.get("HOME", os.sep)) / ".aws"
    files = configparser.ConfigParser(interpolation=None)
    try:
        files.read([variables.get("AWS_SHARED_CREDENTIALS_FILE", home / "credentials"),
                    variables.get("AWS_CONFIG_FILE", home / "config")], encoding="utf-8")  # fmt: skip
    except (configparser.Error, OSError, ValueError) as error:
        raise ConfigError(f"the AWS credentials file cannot be read: {error}") from error
    sections = [files[section] for section in (name, f"profile {name}") if section in files]
    found = {key: value for section in sections for key, value in section.items()}
    region = found.get("region", "")
    if "aws_access_key_id" in found and "aws_secret_access_key" in found:
        return _keys(found["aws_access_key_id"], found["aws_secret_access_key"], found.get("aws_session_token")), region
    if not required:
        return None, region
    kind = next((key for key in ("role_arn", "sso_session", "sso_start_url", "credential_process") if key in found), "")
    raise ConfigError(
        f"the AWS profile '{name}' has no keys" + (f" but a {kind}, which only the AWS tools can use" if kind else ""),
        key="AWS_PROFILE",
        hint=f'give its keys: eval "$(aws configure export-credentials --profile {name} --format env)"',
    )


# ---- Google Cloud Storage


def _gs(bucket: Bucket, entry: Any, variables: Mapping[str, str]) -> StoreOptions:
    del bucket
    config: dict[str, Any] = {}
    emulator = variables.get("STORAGE_EMULATOR_HOST", "")
    if emulator:
        url = emulator if "://" in emulator else f"http://{emulator}"
        return StoreOptions({"base_url": url, "skip_signature": True}, plain_http=url.startswith("http://"))
    if entry is not None:
        if not isinstance(entry, str):
            raise ConfigError(f"{FILE}: an entry of section 'gs' is no text", hint="it is the path of a key file")
        config["application_credentials"] = entry
    elif not _google_knows_us(variables):
        config["skip_signature"] = True  # as Triton: public buckets need no account
    return StoreOptions(config)


def _google_knows_us(variables: Mapping[str, str]) -> bool:
    """Whether there are credentials to be found, or a machine of Google's that has some."""
    if any(name.startswith("GOOGLE_") for name in variables):
        return True
    home = Path(variables.get("HOME", os.sep))
    if (home / ".config/gcloud/application_default_credentials.json").exists():
        return True
    try:
        return bool(socket.getaddrinfo(METADATA_HOST, 80))
    except OSError:
        return False


# ---- Azure Blob Storage


def _az(bucket: Bucket, entry: Any, variables: Mapping[str, str]) -> StoreOptions:
    said = _object(entry, "as") if entry is not None else {
        "account_str": variables.get("AZURE_STORAGE_ACCOUNT", ""),
        "account_key": variables.get("AZURE_STORAGE_KEY", ""),
        "auth_type": variables.get("AZURE_STORAGE_AUTH_TYPE", ""),
        "client_id": variables.get("AZURE_STORAGE_CLIENT_ID", ""),
    }  # fmt: skip
    emulated = variables.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in ("true", "1")
    account = said.get("account_str") or bucket.account or variables.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    account = account or (EMULATED_ACCOUNT if emulated else "")
    if not account:
        raise ConfigError(f"az://{bucket.name}: no storage account is named", key="AZURE_STORAGE_ACCOUNT",
                          hint="set AZURE_STORAGE_ACCOUNT, or write as://ACCOUNT/CONTAINER/PATH")  # fmt: skip
    kind = said.get("auth_type") or "key"
    if kind not in AUTH_TYPES:
        raise ConfigError(f"AZURE_STORAGE_AUTH_TYPE '{kind}' is none of {', '.join(AUTH_TYPES)}",
                          key="AZURE_STORAGE_AUTH_TYPE")  # fmt: skip
    config: dict[str, Any] = {"account_name": account} if account else {}
    if said.get("client_id"):
        config["client_id"] = said["client_id"]
    if kind == "key" and said.get("account_key"):
        config["account_key"] = said["account_key"]
    elif kind == "key" and (entry is not None or not any(name in variables for name in AZURE_ELSEWHERE)):
        config["skip_signature"] = True  # as Triton: public containers need no account
    endpoint = variables.get("AZURE_STORAGE_ENDPOINT") or variables.get("AZURE_ENDPOINT", "")
    if endpoint:
        config["endpoint"] = endpoint
    return StoreOptions(config, plain_http=endpoint.startswith("http://") or emulated)
