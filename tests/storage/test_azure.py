"""Azure Blob Storage: against Azurite, Microsoft's emulator, where TISFAST_AZURITE names its azurite-blob command."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess

import pytest

from perf.oracle.ports import held_ports
from tests.storage.helpers import REPO
from tests.storage.servers import Faults, proxy_handler, serving
from tests.waiting import wait_until
from tisfast import limits
from tisfast.errors import ConfigError

COMMAND = os.environ.get("TISFAST_AZURITE", "")
pytestmark = pytest.mark.skipif(not COMMAND, reason="TISFAST_AZURITE is not set")
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def answers(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.suppress(OSError), contextlib.closing(connection):
        connection.request("GET", "/")
        connection.getresponse().read()
        return True
    return False


@pytest.fixture(scope="module")
def azurite(tmp_path_factory):
    with held_ports(1) as [port]:
        folder = tmp_path_factory.mktemp("azurite")
        flags = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder), "--skipApiVersionCheck"]
        process = subprocess.Popen([COMMAND, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: process.poll() is not None or answers(port), lambda: "azurite answers")
        assert process.poll() is None
        yield port
        process.kill()
        process.wait()


@pytest.fixture
def container(azurite):
    import obstore
    from obstore.store import AzureStore

    name = f"c{os.urandom(4).hex()}"
    store = AzureStore(
        name, account_name=ACCOUNT, account_key=KEY, endpoint=f"http://127.0.0.1:{azurite}/{ACCOUNT}",
        client_options={"allow_http": True},
    )  # fmt: skip
    _create(azurite, name)
    for path, text in REPO.items():
        obstore.put(store, f"models/{path}", text.encode())
    return name


def _create(port: int, name: str) -> None:
    """Create Container, signed as Shared Key wants it."""
    import base64
    import hashlib
    import hmac
    from email.utils import formatdate

    date = formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:2021-12-02\n"
    text = "PUT" + "\n" * 12 + headers + f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers={
        "x-ms-date": date, "x-ms-version": "2021-12-02", "Authorization": f"SharedKey {ACCOUNT}:{signature}",
        "Content-Length": "0",
    })  # fmt: skip
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()


@pytest.mark.parametrize("form", ["as://{account}/{container}/models", "az://{container}/models"])
def test_a_repository_is_seen_as_it_is_and_resumed(form, azurite, container, storage, monkeypatch):
    monkeypatch.setattr(limits, "STORAGE_DELAY_SECONDS_FIRST", 0.001)
    monkeypatch.setattr(limits, "STORAGE_REQUEST_RETRIES", 0)
    faults = Faults()
    with serving(proxy_handler(azurite, faults)) as port:
        variables = {
            "AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
        }  # fmt: skip
        faults.before = lambda path: (
            path.endswith("weights.bin") and len(faults.gets("weights.bin")) == 1 and faults.cut.append(1_500_000)
        )
        server = storage(form.format(account=ACCOUNT, container=container), variables=variables)
        assert server.refresh() == {}
        assert server.seen == REPO
        assert faults.gets("weights.bin")[1].startswith("bytes=")


def test_a_flipped_byte_is_noticed(azurite, container, storage, monkeypatch):
    faults = Faults(flip=[2_000_000])
    with serving(proxy_handler(azurite, faults)) as port:
        monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")  # obstore reads the environment itself, too
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{port}")
        server = storage(f"az://{container}/models", variables={"AZURE_STORAGE_USE_EMULATOR": "true"})
        assert server.refresh() == {}
        assert server.seen == REPO
        assert len(faults.gets("weights.bin")) == 2


def test_a_wrong_key_is_named(azurite, container, storage):
    variables = {
        "AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": "d3Jvbmc=",
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{azurite}/{ACCOUNT}",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="credentials lack the right"):
        storage(f"az://{container}/models", variables=variables).refresh()
