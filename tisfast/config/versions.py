"""Which versions of a model are served.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tisfast.config.schema import Message


@dataclass(frozen=True)
class VersionPolicy:
    """choice: how to choose; latest: how many; specific: which."""

    choice: Literal["latest", "all", "specific"] = "latest"
    latest: int = 1
    specific: tuple[int, ...] = ()

    def choose(self, present: Iterable[int]) -> tuple[int, ...]:
        """The versions to serve of those present, ascending."""
        ordered = sorted(set(present))
        if self.choice == "all":
            return tuple(ordered)
        if self.choice == "specific":
            return tuple(version for version in ordered if version in self.specific)
        return tuple(ordered[-self.latest :] if self.latest else ())

    def __str__(self) -> str:
        """The policy as config.pbtxt states it."""
        if self.choice == "latest":
            return f"latest {{ num_versions: {self.latest} }}"
        return "all { }" if self.choice == "all" else f"specific {{ versions: {list(self.specific)} }}"


def read(message: Message) -> VersionPolicy:
    """The policy of a message; the latest version where it says nothing."""
    policy = message.version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice is None:
        return VersionPolicy()
    return VersionPolicy(
        choice=choice,
        latest=policy.latest.num_versions if choice == "latest" else 0,
        specific=tuple(sorted(set(policy.specific.versions))) if choice == "specific" else (),
    )
