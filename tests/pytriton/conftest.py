"""Servers of PyTriton's API."""

import pytest

from tests.pytriton.served import start


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
