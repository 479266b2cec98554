"""What a person sees of downloads."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tisfast import limits
from tisfast.storage.progress import DownloadProgress, spelled


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 KB"),
        (1_234_567, "1.2 MB"),
        (5e9, "5.0 GB"),
        (7.5e15, "7500.0 TB"),
    ],
)
def test_sizes_are_spelled_for_people(nbytes, text):
    assert spelled(nbytes) == text


async def shown(progress, until):
    progress.begin()
    progress.expect(4_000_000)
    progress.advance(3_000_000)
    progress.advance(-2_000_000)
    async with asyncio.timeout(20) if hasattr(asyncio, "timeout") else _forever():
        while not until():
            await asyncio.sleep(0)
    progress.end()


class _forever:
    async def __aenter__(self):
        return None

    async def __aexit__(self, *_):
        return None


def test_a_log_has_a_line_now_and_then(monkeypatch, caplog):
    monkeypatch.setattr(limits, "STORAGE_LOG_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, "tisfast.storage"):
        asyncio.run(shown(DownloadProgress(terminal=False), lambda: caplog.records))
    assert caplog.records[0].getMessage() == "downloaded 1.0 MB of 4.0 MB"


def test_a_terminal_has_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(limits, "STORAGE_BAR_SECONDS", 0.0)
    text = []

    def drawn():
        text.append(capsys.readouterr().out)
        return "downloading models" in "".join(text)

    asyncio.run(shown(DownloadProgress(terminal=True), drawn))
    assert "[######..................] 1.0 MB of 4.0 MB" in "".join(text)


def test_nothing_to_download_shows_nothing(monkeypatch, caplog):
    monkeypatch.setattr(limits, "STORAGE_LOG_SECONDS", 0.0)

    async def idle():
        progress = DownloadProgress(terminal=False)
        progress.begin()
        for _ in range(10):
            await asyncio.sleep(0)
        progress.end()

    with caplog.at_level(logging.INFO, "tisfast.storage"):
        asyncio.run(idle())
    assert not caplog.records
