"""Hugging Face repositories: huggingface_hub itself, and a server that answers it."""

from __future__ import annotations

import pytest
from huggingface_hub import constants

from tests.storage.servers import Faults, Hub, proxy_handler, serving
from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.storage.source import Corrupt, Unreachable

FILES = {
    "README.md": b"a card",
    "models/a/config.pbtxt": b"x",
    "models/a/1/model.py": b"y" * 10_000,
    "models/a/1/weights.bin": b"w" * 2_000_000,
}
SEEN = {path.removeprefix("models/"): data.decode() for path, data in FILES.items() if path.startswith("models")}


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch):
    monkeypatch.setattr(limits, "STORAGE_DELAY_SECONDS_FIRST", 0.001)


@pytest.fixture
def hub(monkeypatch):
    """Its endpoint is set as huggingface_hub keeps it, since that reads HF_ENDPOINT when it is imported."""
    hub = Hub("owner/repo", dict(FILES), large=("models/a/1/weights.bin",))
    hub.faults = Faults()
    with serving(hub.handler()) as plain, serving(proxy_handler(plain, hub.faults)) as port:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            f"http://127.0.0.1:{port}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        )
        yield hub


def test_a_folder_of_a_repository(hub, storage):
    server = storage("hf://owner/repo/models")
    assert server.refresh() == {}
    assert server.seen == SEEN
    assert not [path for path in hub.asked if path.endswith("README.md")]


def test_a_revision_and_one_model(hub, storage):
    server = storage("hf://owner/repo@v1/models/a")
    server.refresh()
    assert server.seen == SEEN
    with pytest.raises(ConfigError, match="hf://owner/repo@v2"):
        storage("hf://owner/repo@v2").refresh()


def test_a_new_commit_brings_what_is_new_in_it(hub, storage):
    server = storage("hf://owner/repo/models")
    server.refresh()
    hub.files["models/a/1/model.py"] = b"new"
    before = len(hub.asked)
    server.refresh()
    assert server.seen["a/1/model.py"] == "new"
    assert len([path for path in hub.asked[before:] if "/resolve/" in path]) == 1


@pytest.mark.parametrize("path", ["models/a/1/weights.bin", "models/a/1/model.py"])
def test_every_file_is_verified(path, hub, storage):
    hub.damaged = path
    server = storage("hf://owner/repo/models")
    assert isinstance(server.refresh()["a"], Corrupt)
    assert server.seen == {}


def test_it_is_resumed(hub, storage):
    server = storage("hf://owner/repo/models")
    hub.faults.before = lambda path: (
        len(hub.faults.gets("weights.bin")) == 1 and path.endswith("weights.bin") and hub.faults.cut.append(1_200_000)
    )
    assert server.refresh() == {}
    assert server.seen == SEEN
    assert hub.faults.gets("weights.bin") == ["", "bytes=1200000-"]


def test_a_private_repository_needs_a_token(hub, storage, monkeypatch):
    hub.token = "hf_secret"
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="hf://owner/repo.*HF_TOKEN"):
        storage("hf://owner/repo/models").refresh()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    server = storage("hf://owner/repo/models")
    server.refresh()
    assert server.seen == SEEN


def test_bare_weights_are_no_model_repository(hub, storage):
    hub.files = {"config.json": b"{}", "model.safetensors": b"x"}
    with pytest.raises(ConfigError, match="no model repository and no model: it has config.json, model.safetensors"):
        storage("hf://owner/repo").refresh()


def test_a_hub_that_is_down_is_unreachable(hub, storage):
    storage("hf://owner/repo/models").refresh()
    hub.faults.dead = True
    server = storage("hf://owner/repo/models")
    server.refresh()
    assert server.seen == SEEN
    with pytest.raises(Unreachable):
        storage("hf://owner/repo/models", offline="never").refresh()
