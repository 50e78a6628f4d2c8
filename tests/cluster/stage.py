"""A directory through which a test controls the ranks of its runs, so that no test depends on timing.

Works on the test cluster only, whose pods may mount directories of this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepset.run_status import LogLine
from tests.cluster.many import PAIR, RANK

_COUNT = """
from pathlib import Path

def count_until(word):
    global count
    while not Path({stage!r}, word).exists():
        print(f'line {{count}}')  # one write: a rank that is killed prints the whole line or nothing
        count += 1
        time.sleep(0.05)

def wait_until(word):
    while not Path({stage!r}, word).exists():
        time.sleep(0.05)

def say(word):
    Path({stage!r}, word).touch()

count = 0
"""


@dataclass(frozen=True)
class Stage:
    """The directory; a file in it is a signal, named by a word.

    Args:
        path: an absolute path, not below /var or /run: nodes have their own.
    """

    path: Path

    def say(self, word: str) -> None:
        """Signals `word`: ranks that wait for it continue."""
        (self.path / word).touch()

    def has(self, word: str) -> bool:
        """Whether the test or a rank has signalled `word`."""
        return (self.path / word).exists()

    def job(self, *lines: str, **fields: Any) -> dict[str, Any]:
        """Fields of a job whose ranks run lines of Python.

        Args:
            lines: the program; it may use `rank`, `attempt`, `count_until(word)`, `wait_until(word)`, `say(word)`.
            fields: other fields of the job; default: two pods with one rank each.
        """
        container = {"name": "node", "volumeMounts": [{"name": "stage", "mountPath": str(self.path)}]}
        volumes = [{"name": "stage", "hostPath": {"path": str(self.path)}}]
        more = dict(fields.pop("pod_template", {}))
        template = {"containers": [container], "volumes": volumes, **more}
        text = "\n".join([RANK + _COUNT.format(stage=str(self.path)), *lines, ""])
        return {**PAIR, "function": text, "pod_template": template, **fields}


def missing_lines(lines: Sequence[LogLine], source: str) -> str:
    """Describes the first error in the numbered lines of a source, which may have several attempts; "" without error.

    Args:
        lines: the lines, in the order in which the listener received them.
        source: a source, such as `rank 0`.
    """
    numbers = [int(each.text[5:]) for each in lines if each.source == source and each.text.startswith("line ")]
    expected = 0
    for at, number in enumerate(numbers):
        if number == 0:
            expected = 0
        if number != expected:
            return f"{source}: {numbers[max(0, at - 3) : at + 3]} where {expected} should be"
        expected += 1
    return "" if numbers else f"{source}: no lines"
