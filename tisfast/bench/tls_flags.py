"""perf_analyzer's flags of encrypted connections.  Layer 5 (bench)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tisfast.bench.encryption import Encryption
from tisfast.client.address import Address
from tisfast.errors import ConfigError

HTTPS: Final = {
    "--ssl-https-verify-peer": ("0|1", "0: whoever answers is trusted, whatever its name; default 1"),
    "--ssl-https-verify-host": ("0|1|2", "0: the certificate may be of another host; default 2"),
    "--ssl-https-ca-certificates-file": ("FILE", "PEM of the authorities that are trusted; default: the system's"),
    "--ssl-https-client-certificate-file": ("FILE", "the client's own"),
    "--ssl-https-client-certificate-type": ("PEM|DER", "default PEM"),
    "--ssl-https-private-key-file": ("FILE", "of the client's certificate; default: it is in the same file"),
    "--ssl-https-private-key-type": ("PEM|DER", "default PEM"),
}
GRPC: Final = {
    "--ssl-grpc-root-certifications-file": ("FILE", "PEM of the authorities that are trusted; default: the system's"),
    "--ssl-grpc-private-key-file": ("FILE", "PEM, of the client's certificate"),
    "--ssl-grpc-certificate-chain-file": ("FILE", "PEM, the client's own"),
}
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {"0|1": ("0", "1"), "0|1|2": ("0", "1", "2"), "PEM|DER": ("PEM", "DER")}
SAID: Final = {
    "0|1": "The value must be either 0 or 1.",
    "0|1|2": "The value must be either 0, 1, or 2.",
    "PEM|DER": "Unsupported type provided: '{}'. The available options are 'PEM' or 'DER'.",
}


def add_tls(made: argparse.ArgumentParser) -> None:
    """The flags."""
    group = made.add_argument_group("encryption, of a URL https://HOST:PORT or grpcs://HOST:PORT")
    group.add_argument("--ssl-grpc-use-ssl", action="store_true", help="as a URL grpcs://")
    for flag, (values, text) in {**HTTPS, **GRPC}.items():
        group.add_argument(flag, metavar=values, help=text)


def read_tls(given: Any, address: Address) -> Encryption | None:
    """Of one server; None where it is not encrypted.  Raises ConfigError for a value that cannot be one."""
    for flag, (values, _) in {**HTTPS, **GRPC}.items():
        _check(flag, values, _value(given, flag))
    if not address.tls:
        return None
    if not address.grpc:
        verify, host, ca, cert, cert_type, key, key_type = (_value(given, flag) for flag in HTTPS)
        if key and not cert:
            raise _lacks("--ssl-https-private-key-file", "--ssl-https-client-certificate-file")
        return Encryption(
            ca=ca,
            cert=cert,
            key=key,
            verify=verify != "0",
            verify_host=host != "0",
            cert_type=cert_type or "PEM",
            key_type=(key_type if key else cert_type) or "PEM",
        )
    ca, key, cert = (_value(given, flag) for flag in GRPC)
    if key and not cert:
        raise _lacks("--ssl-grpc-private-key-file", "--ssl-grpc-certificate-chain-file")
    return Encryption(ca=ca, cert=cert, key=key)


def check_used(given: Any, addresses: Iterable[Address]) -> None:
    """Flags that would change nothing are refused: who gives them believes that the connection is encrypted."""
    encrypted = {address.grpc for address in addresses if address.tls}
    switched = {"--ssl-grpc-use-ssl": "-i grpc"} if given.ssl_grpc_use_ssl else {}
    https = {flag: "-u https://HOST:PORT" for flag in HTTPS if _value(given, flag) is not None}
    grpcs = {flag: "-i grpc --ssl-grpc-use-ssl" for flag in GRPC if _value(given, flag) is not None}
    for grpc, flags in ((False, https), (True, switched | grpcs)):
        named, remedy = next(iter(flags.items()), ("", ""))
        if named and grpc not in encrypted:
            what = "gRPC" if grpc else "HTTPS"
            raise ConfigError(
                f"{named} is of encrypted {what}, and this connection is not: add {remedy}, or leave it out"
            )


def _check(flag: str, values: str, value: str | None) -> None:
    if value is None:
        return
    if values == "FILE":
        if not Path(value).is_file():
            raise ConfigError(f"Failed to parse {flag}. The value must be a valid file path; there is no file {value}")
    elif value not in CHOICES[values]:
        raise ConfigError(f"Failed to parse {flag}. {SAID[values].format(value)}")


def _lacks(key: str, cert: str) -> ConfigError:
    return ConfigError(f"{key} is given without {cert}, whose key it is")


def _value(given: Any, flag: str) -> str | None:
    found: str | None = getattr(given, flag.lstrip("-").replace("-", "_"))
    return found
