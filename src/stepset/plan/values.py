"""Text with placeholders that only a target or backend can fill in: host names, ports, paths, ranks.

Frameworks write such text; targets (Kubernetes) and the local backend resolve it with a `Resolver` of their own, so
that one plan runs anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PodHost:
    """The host name of pod `index` of a group."""

    group: str
    index: int


@dataclass(frozen=True, slots=True)
class PortNumber:
    """A port of the plan, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class NodeRank:
    """The index of the pod within its group."""


@dataclass(frozen=True, slots=True)
class ProcessRank:
    """The rank of one process in the world: node rank x processes per node + local rank."""


@dataclass(frozen=True, slots=True)
class LocalRank:
    """The index of one process within its pod."""


@dataclass(frozen=True, slots=True)
class OwnDeviceFirst:
    """The pod's CUDA devices as a list for CUDA_VISIBLE_DEVICES, that of the process first; always the only part of a
    Text.

    Args:
        indexes: the list to use if the environment of the pod names no devices; "" to leave the variable unset then.
    """

    indexes: str = ""


@dataclass(frozen=True, slots=True)
class FirstNode:
    """ "1" in pod 0 of the group, "0" in every other."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How many times the gang was started before."""


@dataclass(frozen=True, slots=True)
class RunName:
    """The name of the run."""


@dataclass(frozen=True, slots=True)
class RendezvousId:
    """A random text, the same in all pods of a run and not part of their manifests; always the only part of a Text."""


@dataclass(frozen=True, slots=True)
class CodePath:
    """A path inside the code that is shipped with the job; "" is its directory."""

    path: str = ""


@dataclass(frozen=True, slots=True)
class MountedFile:
    """The path of one of the plan's files, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class ResultFile:
    """The file into which rank 0 writes the result."""


Part = (
    str
    | PodHost
    | PortNumber
    | NodeRank
    | ProcessRank
    | LocalRank
    | OwnDeviceFirst
    | FirstNode
    | Attempt
    | RunName
    | RendezvousId
    | CodePath
    | MountedFile
    | ResultFile
)


_KNOWN_TO_AGENT = frozenset({ProcessRank, LocalRank, OwnDeviceFirst, FirstNode})


@dataclass(frozen=True, slots=True)
class Text:
    """A text with placeholders to fill in."""

    parts: tuple[Part, ...]

    @property
    def needs_agent(self) -> bool:
        """Whether only the agent can fill in the text, because it differs between pods or processes of one group."""
        for part in self.parts:  # noqa: SIM110  # any() costs twice the time, and every render asks each variable twice
            if type(part) in _KNOWN_TO_AGENT:
                return True
        return False


@dataclass(frozen=True, slots=True)
class SecretValue:
    """A key of a Secret."""

    secret: str
    key: str


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A field of the pod."""

    path: str


Value = Text | SecretValue | FieldValue


class Resolver(Protocol):
    """Returns the text for one placeholder."""

    def __call__(self, part: Part) -> str: ...


RENDEZVOUS_ID = Text((RendezvousId(),))
"""The value of a variable that contains the rendezvous ID."""


def text(*parts: Part | int) -> Text:
    """A Text of these parts; numbers are converted.

    >>> text("tcp://", PodHost("node", 0), ":", 29500).parts
    ('tcp://', PodHost(group='node', index=0), ':', '29500')
    """
    return Text(tuple([str(p) if isinstance(p, int) else p for p in parts]))


def texts(words: Iterable[str]) -> tuple[Text, ...]:
    """Plain words as Texts."""
    return tuple([Text((w,)) for w in words])


def resolve(value: Text, resolver: Resolver) -> str:
    """Returns the text with every placeholder filled in."""
    parts = value.parts
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return "".join([p if isinstance(p, str) else resolver(p) for p in parts])
