"""Finds arguments and variables that are too long for Linux to start a process.

Source: Linux v6.12 fs/exec.c (`bprm_stack_limits`) and include/uapi/linux/binfmts.h (MAX_ARG_STRLEN), with pages of 4
KiB. The total is a quarter of the stack's limit, which is 8 MiB in most containers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stepset.plan.expand import references
from stepset.spec.environ import EnvText, EnvVar
from stepset.spec.job import TrainingJob
from stepset.spec.template import is_whole, pod_spec
from stepset.unstructured import rows

WORD_LIMIT = 128 * 1024 - 1
"""The maximum length of an argument, or of `NAME=VALUE`, in bytes. A null byte follows."""
TOTAL_LIMIT = 2 * 1024 * 1024
"""The maximum length of all arguments and variables of a process, in bytes."""
_OVERHEAD = 9
"""The null byte and the pointer of an argument or of a variable, in bytes."""
_REMEDY = "write it to a file, such as a file in code, and pass the path of the file"


def exec_problems(job: TrainingJob) -> Iterator[str]:
    """Yields one line for each argument or variable that is too long, and for each process with too many of them.

    References such as `$(NAME)` count as the value that Kubernetes inserts.
    """
    env = _lengths((name, _text(each)) for name, each in job.env.items())
    yield from _process("", job.command or [], job.args, env)
    for role in job.roles:
        own = _lengths((name, _text(each)) for name, each in role.env.items())
        yield from _process(f"roles.{role.name}.", role.command, role.args, own)
    spec, place = pod_spec(job.pod_template), "pod_template.spec" if is_whole(job.pod_template) else "pod_template"
    for kind in ("containers", "initContainers"):
        for container in rows(spec, kind):
            own = _lengths((str(row.get("name")), row.get("value")) for row in rows(container, "env"))
            words = (_words(container, "command"), _words(container, "args"))
            yield from _process(f"{place}.{kind}.{container.get('name')}.", *words, own)


def _process(place: str, command: Sequence[str], args: Sequence[str], env: Mapping[str, int]) -> Iterator[str]:
    """Yields the problems of one process. `env` maps the names of the variables to the lengths of their values."""
    total = 0
    for field, words in (("command", command), ("args", args)):
        for index, word in enumerate(words):
            length = _length(word, env)
            total += length + _OVERHEAD
            if length > WORD_LIMIT:
                yield f"{place}{field}[{index}]: {_too_long(length, 'an argument')}"
    for name, value in env.items():
        length = len(name.encode()) + 1 + value
        total += length + _OVERHEAD
        if length > WORD_LIMIT:
            yield f"{place}env.{name}: {_too_long(length, 'a variable')}"
    if total > TOTAL_LIMIT:
        yield (
            f"{place}args: the arguments and variables have {total} bytes; Linux allows {TOTAL_LIMIT} for a process;"
            f" {_REMEDY}"
        )


def _too_long(length: int, what: str) -> str:
    return f"has {length} bytes; Linux allows {WORD_LIMIT} in {what}; {_REMEDY}"


def _lengths(variables: Iterable[tuple[str, Any]]) -> dict[str, int]:
    """Returns the lengths of the values of variables, in bytes. A value that is not text counts as empty."""
    found: dict[str, int] = {}
    for name, value in variables:
        found[name] = _length(value, found) if isinstance(value, str) else 0
    return found


def _length(text: str, env: Mapping[str, int]) -> int:
    """Returns the length of a text in bytes after Kubernetes has replaced its references.

    >>> _length("--size=$(SIZE)$$", {"SIZE": 100})
    108
    """
    size = len(text.encode(errors="surrogatepass"))
    for start, end, name in references(text) if "$" in text else ():
        before = len(text[start:end].encode(errors="surrogatepass"))
        size += 1 - before if name is None else env.get(name, before) - before
    return size


def _text(variable: EnvVar) -> str | None:
    return variable.value if isinstance(variable, EnvText) else None


def _words(container: Mapping[str, Any], field: str) -> list[str]:
    words = container.get(field)
    return [each for each in words if isinstance(each, str)] if isinstance(words, list) else []
