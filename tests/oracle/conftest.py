"""Both servers, once a session, on free ports; and these tests only when asked for (make test-oracle)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle import once_more
from tests.oracle.cases import regions
from tests.oracle.servers import HERE, Servers


def pytest_configure(config: pytest.Config) -> None:
    """Run once more what fails by the real Triton's fault."""
    if not config.pluginmanager.is_registered(once_more):
        config.pluginmanager.register(once_more)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is here, and leave it out unless -m oracle or a path in here was given."""
    here = [item for item in items if item.path.is_relative_to(HERE)]
    for item in here:
        item.add_marker(pytest.mark.oracle)
    if "oracle" not in config.option.markexpr and not any("oracle" in argument for argument in config.args):
        items[:] = [item for item in items if item not in here]
        config.hook.pytest_deselected(items=here)


@pytest.fixture(scope="session")
def region_file() -> Iterator[Path]:
    """The shared memory that the cases of regions.py name."""
    path = Path("/dev/shm") / regions.KEY[1:]
    path.write_bytes(bytes(regions.NBYTES))
    yield path
    path.unlink()


@pytest.fixture(autouse=True)
def region_contents(region_file: Path) -> None:
    """What the cases expect there: earlier ones have written outputs into it.  In place, as it may be mapped."""
    with region_file.open("r+b") as file:
        file.write(struct.pack(f"<{regions.NBYTES // 4}f", *range(regions.NBYTES // 4)))


@pytest.fixture(scope="session")
def triton() -> Iterator[Servers]:
    """The real one."""
    servers = Servers("triton")
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def tisfast() -> Iterator[Servers]:
    """Ours."""
    servers = Servers("tisfast")
    yield servers
    servers.stop()
