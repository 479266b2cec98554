"""As much of `sseclient-py` as Triton's tests use, which this target does not fetch."""


class Event:
    """One event: its data."""

    def __init__(self, data):
        self.data = data


class SSEClient:
    """The events of an answer of `requests`."""

    def __init__(self, response):
        self._response = response

    def _read(self):
        """What has not been read, in one piece."""
        return filter(None, [self._response.content])

    def events(self):
        """Each event, as it comes."""
        for line in self._response.iter_lines(decode_unicode=True):
            if line.startswith("data:"):
                yield Event(line[len("data:") :].strip())
