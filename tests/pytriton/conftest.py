"""Servers of PyTriton's API."""

import pytest

from tests.pytriton.served import add, model, start
from tisfast.pytriton.triton import TritonSecurityConfig


@pytest.fixture
def triton(tmp_path):
    """Makes servers; all of them are stopped."""
    made = []

    def make(*models, workspace="work", **settings):
        made.append(start(*models, workspace=tmp_path / workspace, **settings))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture(scope="module")
def closed_to_strangers(tmp_path_factory):
    """A server that tells those without a token nothing of itself and its models."""
    security = TritonSecurityConfig(access_token="key", restricted_endpoints=["health", "model-config"])
    triton = start(model("add", add), workspace=tmp_path_factory.mktemp("pytriton") / "work", security=security)
    yield triton
    triton.stop()
