"""A model of sequences with fake links: what the tests of the sequence batcher drive."""

from __future__ import annotations

from tests.engine.helpers import MS, Model
from tisfast.config.sequence_settings import SequenceSettings

START, END = 1, 2


class SequenceModel(Model):
    """changes: of SequenceSettings, and hold: its scheduler's hold_requests and hold_backlog.

    A request's id is made of its sequence and its number: "7.0", "7.1", ...
    """

    def __init__(self, slots=4, oldest=False, max_batch_size=None, instances=1, decoupled=False, **changes):
        requests, backlog = changes.pop("hold", (0, 0))
        sequence = SequenceSettings(**{"slots": slots, "oldest": oldest, "idle_ns": 1000 * MS} | changes)
        size = slots if max_batch_size is None else max_batch_size
        more = {"max_batch_size": size, "dynamic": False, "sequence": sequence}
        more |= {"hold_requests": requests, "hold_backlog": backlog}
        super().__init__(instances=instances, decoupled=decoupled, **more)
        self.numbers = {}

    def ask(self, sequence, flags=0, **what):
        """One request of a sequence."""
        number = self.numbers[sequence] = self.numbers.get(sequence, -1) + 1
        return self.send(f"{sequence}.{number}", correlation=sequence, flags=flags, **what)[0]

    @property
    def link(self):
        return self.links[0]

    def run(self, **what):
        """Execute the oldest batch of the first instance; what was in it."""
        places = self.link.places()[0]
        self.link.execute(**what)
        return places

    def failures(self):
        """(status, message) by request, of those that failed."""
        return {name: (status, message) for name, status, message in self.calls if status}
