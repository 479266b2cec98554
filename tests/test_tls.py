"""Certificates with real handshakes in memory: the client's side is the standard library's."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from tisfast.errors import ConfigError
from tisfast.tls import Certificates


class Files:
    """A certificate of a new authority, and a client's, in files."""

    def __init__(self, folder: Path):
        self.cert, self.key, self.client_ca = (str(folder / name) for name in ("cert.pem", "key.pem", "ca.pem"))
        self.renew()

    def renew(self):
        self.authority = trustme.CA()
        server = self.authority.issue_cert("localhost")
        server.private_key_pem.write_to_path(self.key)
        Path(self.cert).write_bytes(b"".join(pem.bytes() for pem in server.cert_chain_pems))
        self.authority.cert_pem.write_to_path(self.client_ca)

    def client(self, *, certificate=False, alpn=()):
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if certificate:
            self.authority.issue_cert("client@here.org").configure_cert(context)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """A whole handshake; returns the client's end.  Raises SSLError of whichever side refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    return ends[0]


def test_a_client_that_trusts_the_authority_connects(files):
    assert shake(Certificates(files.cert, files.key).context, files.client()).version() in ("TLSv1.2", "TLSv1.3")


def test_the_protocols_offered_are_negotiated(files):
    certificates = Certificates(files.cert, files.key, alpn=("h2",))
    assert shake(certificates.context, files.client(alpn=("http/1.1", "h2"))).selected_alpn_protocol() == "h2"


def test_mutual_tls_refuses_a_client_without_certificate(files):
    certificates = Certificates(files.cert, files.key, files.client_ca)
    with pytest.raises(ssl.SSLError, match="(?i)did not return a certificate|certificate_required"):
        shake(certificates.context, files.client())


def test_mutual_tls_takes_a_client_of_the_authority(files):
    certificates = Certificates(files.cert, files.key, files.client_ca)
    assert shake(certificates.context, files.client(certificate=True))


def test_reload_uses_the_new_files_for_new_connections(files):
    certificates = Certificates(files.cert, files.key)
    context, before = certificates.context, files.client()
    shake(context, before)
    files.renew()
    certificates.reload()
    shake(context, files.client())
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shake(context, before)


def test_reload_forgets_the_old_client_authority(files):
    certificates = Certificates(files.cert, files.key, files.client_ca)
    old = files.authority
    files.renew()
    certificates.reload()
    stranger = files.client()
    old.issue_cert("client@here.org").configure_cert(stranger)
    with pytest.raises(ssl.SSLError):
        shake(certificates.context, stranger)


def test_a_broken_new_certificate_leaves_the_old_one(files):
    certificates = Certificates(files.cert, files.key)
    Path(files.cert).write_text("not a certificate")
    with pytest.raises(ConfigError, match=r"cert\.pem"):
        certificates.reload()
    shake(certificates.context, files.client())


@pytest.mark.parametrize("lost", ["cert", "key", "client_ca"])
def test_a_missing_file_is_named(files, lost):
    Path(getattr(files, lost)).unlink()
    with pytest.raises(ConfigError, match=f"cannot read .*{Path(getattr(files, lost)).name}: No such file"):
        Certificates(files.cert, files.key, files.client_ca)


def test_a_key_of_another_certificate_is_refused(files):
    trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(files.key)
    with pytest.raises(ConfigError, match="key values mismatch"):
        Certificates(files.cert, files.key)


def test_an_authority_file_without_certificates_is_refused(files):
    Path(files.client_ca).write_text("nothing")
    with pytest.raises(ConfigError, match=r"ca\.pem holds no certificates"):
        Certificates(files.cert, files.key, files.client_ca)


def test_an_encrypted_key_is_refused_without_asking_at_the_terminal(files):
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    Path(files.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match=r"key\.pem is encrypted"):
        Certificates(files.cert, files.key)
