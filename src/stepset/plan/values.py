"""`Text`, a string with placeholders for host names, ports, paths and ranks.

The frameworks create the `Text` objects of a plan. A `Resolver` replaces the placeholders. Each target for Kubernetes
has its own `Resolver`, and the local backend also has a `Resolver`. Therefore the same plan can run on Kubernetes and
locally.
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
    """The number of the plan's port with this name."""

    name: str


@dataclass(frozen=True, slots=True)
class NodeRank:
    """The index of the pod within its group."""


@dataclass(frozen=True, slots=True)
class ProcessRank:
    """The rank of a process in the world. The value is node rank x processes per node + local rank."""


@dataclass(frozen=True, slots=True)
class LocalRank:
    """The index of a process within its pod."""


@dataclass(frozen=True, slots=True)
class OwnDeviceFirst:
    """The value of CUDA_VISIBLE_DEVICES for a process: a list of all devices of the pod.

    The first entry of the list is the device of the process.

    A `Text` with this placeholder has no other parts.

    Args:
        indexes: the list of devices to use if the environment of the pod specifies no devices. If this list is needed
            and is "", the variable is not set.
    """

    indexes: str = ""


@dataclass(frozen=True, slots=True)
class FirstNode:
    """The string "1" in pod 0 of the group, and the string "0" in all other pods."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The number of earlier attempts of the run. Each attempt starts all pods of the run."""


@dataclass(frozen=True, slots=True)
class RunName:
    """The name of the run."""


@dataclass(frozen=True, slots=True)
class RendezvousId:
    """A random string that is equal in all pods of a run. The manifests do not contain this string.

    A `Text` with this placeholder has no other parts.
    """


@dataclass(frozen=True, slots=True)
class CodePath:
    """The path of a file of the job's code in a pod. If `path` is empty, this is the path of the code directory."""

    path: str = ""


@dataclass(frozen=True, slots=True)
class MountedFile:
    """The path at which pods mount the plan's file of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class ResultFile:
    """The path of the file to which rank 0 writes the result."""


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
    """A string with placeholders."""

    parts: tuple[Part, ...]

    @property
    def needs_agent(self) -> bool:
        """Whether only the agent knows the value of a placeholder. Such a value differs between processes."""
        # This loop is faster than any(). To render a run, stepset evaluates this property twice for each variable.
        for part in self.parts:  # noqa: SIM110
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
    """A function that returns the value of a placeholder as a string."""

    def __call__(self, part: Part) -> str: ...


RENDEZVOUS_ID = Text((RendezvousId(),))
"""The value of a variable that contains the rendezvous ID."""


def text(*parts: Part | int) -> Text:
    """Returns a `Text` with these parts. Numbers are converted to strings.

    >>> text("tcp://", PodHost("node", 0), ":", 29500).parts
    ('tcp://', PodHost(group='node', index=0), ':', '29500')
    """
    return Text(tuple([str(p) if isinstance(p, int) else p for p in parts]))


def texts(words: Iterable[str]) -> tuple[Text, ...]:
    """Converts each word to a `Text` that has no placeholders."""
    return tuple([Text((w,)) for w in words])


def resolve(value: Text, resolver: Resolver) -> str:
    """Returns a string in which every placeholder of `value` is replaced with the result of `resolver`."""
    parts = value.parts
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return "".join([p if isinstance(p, str) else resolver(p) for p in parts])


def literal_words(words: Iterable[Text]) -> list[str]:
    """Returns the words of a command, with `$` in place of each placeholder."""
    return ["".join([part if isinstance(part, str) else "$" for part in word.parts]) for word in words]
