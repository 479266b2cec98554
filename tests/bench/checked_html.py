"""A reader of pages that fails where tags do not close each other."""

from __future__ import annotations

from html.parser import HTMLParser


class Checked(HTMLParser):
    """Fails where tags do not close each other; keeps the texts of each SVG."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.charts: list[list[str]] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag == "svg":
            self.charts.append([])
        if tag not in {"meta", "link"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "svg" in self.open and self.open[-1] == "text":
            self.charts[-1].append(data)
