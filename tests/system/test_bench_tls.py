"""`tisfast bench` over TLS against a real server: both protocols, streams, large tensors, and what goes wrong."""

from __future__ import annotations

import pytest
import trustme

from tests.system.bench_command import bench, figure

COUNTED = ["-m", "add_one", "--request-count", "50", "--concurrency-range", "3"]


class Files:
    """Names of files in PEM."""

    def __init__(self, folder):
        self.ca, self.other = f"{folder}/ca.pem", f"{folder}/other.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        trustme.CA().cert_pem.write_to_path(self.other)
        for name, identity in (("server", "localhost"), ("stranger", "other.example"), ("client", "me@here.org")):
            made = authority.issue_cert(identity)
            made.private_key_pem.write_to_path(f"{folder}/{name}-key.pem")
            made.cert_chain_pems[0].write_to_path(f"{folder}/{name}.pem")
        self.client, self.client_key = f"{folder}/client.pem", f"{folder}/client-key.pem"
        self._folder = folder

    def serving(self, name="server", *, mutual=False):
        """Flags of a server."""
        cert, key = f"{self._folder}/{name}.pem", f"{self._folder}/{name}-key.pem"
        flags = [f"--http-ssl-cert={cert}", f"--http-ssl-key={key}", "--grpc-use-ssl=true"]
        flags += [f"--grpc-server-cert={cert}", f"--grpc-server-key={key}"]
        if mutual:
            flags += [f"--http-ssl-client-ca={self.ca}", "--grpc-use-ssl-mutual=true", f"--grpc-root-cert={self.ca}"]
        return flags


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest.fixture
def urls(serve, write_model):
    """Starts a server; gives the URLs of both protocols."""

    def started(*flags):
        write_model("add_one")
        server = serve("--log-verbose=0", *flags).ready()
        return f"https://localhost:{server.port}", f"grpcs://localhost:{server.says('is ready after')['grpc_port']}"

    return started


def test_requests_go_over_both_protocols(urls, files):
    https, grpcs = urls(*files.serving())
    grpc = ["-i", "grpc", "-u", grpcs.removeprefix("grpcs://"), "--ssl-grpc-use-ssl"]
    grpc += ["--ssl-grpc-root-certifications-file", files.ca]
    for typed in (["-u", https, "--ssl-https-ca-certificates-file", files.ca], grpc, [*grpc, "--streaming"]):
        for shape in ("A:4", "A:300000"):
            code, out, err = bench(*COUNTED, *typed, "--shape", shape)
            assert (code, err) == (0, "")
            assert figure(out, "Successful request count") == 50


def test_a_client_shows_its_certificate(urls, files):
    https, grpcs = urls(*files.serving(mutual=True))
    http = ["-u", https, "--ssl-https-ca-certificates-file", files.ca]
    grpc = ["-u", grpcs, "--ssl-grpc-root-certifications-file", files.ca]
    http_own = ["--ssl-https-client-certificate-file", files.client, "--ssl-https-private-key-file", files.client_key]
    grpc_own = ["--ssl-grpc-certificate-chain-file", files.client, "--ssl-grpc-private-key-file", files.client_key]
    for typed, own in ((http, http_own), (grpc, grpc_own)):
        code, out, err = bench(*COUNTED, *typed, *own, "--shape", "A:4")
        assert (code, err) == (0, "")
        assert figure(out, "Successful request count") == 50
        code, out, err = bench(*COUNTED, *typed, "--shape", "A:4")
        assert (code, out) == (99, "")
        assert f"if it asks clients for a certificate, name one with {own[0]}" in err


def test_a_certificate_that_is_not_accepted_is_told_with_the_host(urls, files):
    https, grpcs = urls(*files.serving("stranger"))
    for url, flag in ((https, "--ssl-https-ca-certificates-file"), (grpcs, "--ssl-grpc-root-certifications-file")):
        for ca, why in ((files.other, "unable to get local issuer certificate"), (files.ca, "Hostname mismatch")):
            code, out, err = bench(*COUNTED, "-u", url, flag, ca, "--shape", "A:4")
            assert (code, out) == (99, "")
            assert err.startswith(f"error: cannot connect to {url}: its certificate is not accepted: {why}")
    for more in (["--ssl-https-verify-peer", "0"], [*flag_of(files), "--ssl-https-verify-host", "0"]):
        assert bench(*COUNTED, "-u", https, *more, "--shape", "A:4")[0] == 0


def flag_of(files):
    return ["--ssl-https-ca-certificates-file", files.ca]


def test_what_encryption_costs_is_measured_by_turns(urls, files):
    https, grpcs = urls(*files.serving())
    typed = ["-u", https, "--vs", grpcs, *flag_of(files), "--ssl-grpc-root-certifications-file", files.ca]
    code, out, err = bench("-m", "add_one", "--shape", "A:4", *typed, "-p", "100", "-r", "8", "--fail-above", "1e9")
    assert (code, err) == (0, "")
    assert f"{https}\n" in out and f"{grpcs}\n" in out
