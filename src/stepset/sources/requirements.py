"""Reads the Python requirements of a job from the field `requirements` and from the script's metadata (PEP 723)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from stepset.errors import BadInputError
from stepset.spec.job import TrainingJob
from stepset.spec.requirement import MAX_REQUIREMENTS, requirement_problem

_START = re.compile(r"# /// ([a-zA-Z0-9-]+)")
_END = "# ///"
_DEPENDENCIES = "script: dependencies"
_MAX_DOTS = 100
"""The maximum number of dots outside quotes in a line of metadata.

tomllib stores every prefix of a dotted key. A key with many dots would therefore use much time and memory.
"""
_QUOTED = re.compile("\"[^\"]*\"|'[^']*'")
_PYTHON = re.compile(r"\s*(?:(?:~=|==|!=|<=|>=|<|>)\s*\d+(?:\.\d+)*(?:\.\*)?\s*(?:,\s*|$))+")


@dataclass(frozen=True)
class Requirements:
    """The Python packages and the Python version that the ranks of a job require.

    Args:
        packages: the required packages (PEP 508).
        python: the required version of Python, such as `>=3.9,<4`, or "" if any version is sufficient.
    """

    packages: tuple[str, ...] = ()
    python: str = ""

    def __bool__(self) -> bool:
        return bool(self.packages or self.python)


NO_REQUIREMENTS = Requirements()


def script_metadata(text: bytes) -> Requirements:
    """Returns the requirements in the metadata of a script. Raises BadInputError if the metadata is invalid.

    >>> script_metadata(b'# /// script\\n# dependencies = ["rich<14"]\\n# ///\\n').packages
    ('rich<14',)
    """
    lines = text.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    blocks = [content for kind, content in _blocks(lines) if kind == "script"]
    if not blocks:
        return NO_REQUIREMENTS
    if len(blocks) > 1:
        raise BadInputError("script: has several `# /// script` blocks; keep one of them (PEP 723)")
    if any(_QUOTED.sub("", line).count(".") > _MAX_DOTS for line in blocks[0]):
        raise BadInputError(f"script: a line of its `# /// script` block has more than {_MAX_DOTS} dots outside quotes")
    try:
        data = tomllib.loads("\n".join(line[2:] for line in blocks[0]))
    except (ValueError, RecursionError) as error:
        other = "it has too many levels, or an integer with too many digits"
        reason = " ".join(str(error).split()) if isinstance(error, tomllib.TOMLDecodeError) else other
        raise BadInputError(f"script: its `# /// script` block is not TOML: {reason}; see PEP 723") from error
    packages, python = data.get("dependencies", []), data.get("requires-python", "")
    if not isinstance(packages, list) or not all(isinstance(each, str) for each in packages):
        raise BadInputError("script: `dependencies` of its `# /// script` block is not a list of texts; see PEP 723")
    if not isinstance(python, str) or (python and not _PYTHON.fullmatch(python)):
        raise BadInputError(
            f"script: `requires-python` of its `# /// script` block is {python!r}; write it like '>=3.11,<4'"
        )
    return Requirements(_checked(packages), python.strip().rstrip(","))


def _blocks(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields the type and the lines of each block of metadata.

    The function finds the same blocks as the regular expression in the specification, but in linear time
    (https://packaging.python.org/en/latest/specifications/inline-script-metadata/). Within consecutive comment lines, a
    block begins at the first line of the form `# /// TYPE` and ends at the last line of the form `# ///`.
    """
    for comments, group in groupby(lines, lambda line: line == "#" or line.startswith("# ")):
        run = list(group) if comments else []
        start = next((index for index, line in enumerate(run) if _START.fullmatch(line)), len(run))
        end = max((index for index, line in enumerate(run) if line == _END), default=0)
        if start + 1 < end:
            yield run[start].split(" ")[2], run[start + 1 : end]


def _checked(rows: Iterable[str]) -> tuple[str, ...]:
    kept = tuple(map(str.strip, rows))
    if len(kept) > MAX_REQUIREMENTS:
        raise BadInputError(f"{_DEPENDENCIES}: {len(kept)} requirements; give at most {MAX_REQUIREMENTS}")
    if wrong := [f"{_DEPENDENCIES}: {problem}" for row in kept if (problem := requirement_problem(row))]:
        raise BadInputError(*wrong)
    return kept


def job_requirements(job: TrainingJob, script: bytes | None) -> Requirements:
    """Returns the requirements of a job together with the requirements in the metadata of the job's script.

    Args:
        script: the content of the script. None if there is no script, or if the content is unknown.

    Raises:
        BadInputError: the metadata is invalid. Also raised if the job sets an environment variable that stepset must
            set for the requirements.
    """
    metadata = script_metadata(script) if script is not None else NO_REQUIREMENTS
    packages = tuple(dict.fromkeys((*job.requirements, *metadata.packages)))
    if packages and "PYTHONPATH" in job.env:
        raise BadInputError("env.PYTHONPATH: stepset sets it for the requirements; leave it out, or use code")
    return Requirements(packages, metadata.python)


def requirement_notes(job: TrainingJob, required: Requirements) -> tuple[str, ...]:
    """Returns a note if both the job and the job's script have requirements. Otherwise, returns an empty tuple."""
    of_script = [each for each in required.packages if each not in job.requirements]
    if not job.requirements or not of_script:
        return ()
    return (
        f"requirements: those of the job ({', '.join(job.requirements)}) and of the script's metadata"
        f" ({', '.join(of_script)}) are installed together",
    )
