"""Collects the parameters of a run. The page of a mapped task shows the parameters that distinguish the runs.

The values of environment variables may be secrets, so the parameters do not include environment variables. If the name
of a parameter is a word such as `password`, Airflow masks the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from stepset.defaults import JOB_FIELDS
from stepset_airflow.airflow_internals import redact
from stepset_airflow.page.document import plain

MAX_PARAMETERS = 40
_NAME, _VALUE = 60, 120
_FIELDS = tuple(name for name in JOB_FIELDS if name not in ("args", "env", "function"))


def parameters_of(operator: Any) -> list[list[str]]:
    """Returns the parameters as pairs of a name and a value.

    The first pairs are arguments of the program. The other pairs are fields of the job.

    >>> class Task:
    ...     args, num_nodes = ["--lr", 0.1, "--amp", "--out=/data", "train"], 2
    >>> parameters_of(Task)
    [['lr', '0.1'], ['amp', 'yes'], ['out', '/data'], ['argument 1', 'train'], ['num_nodes', '2']]
    """
    found: dict[str, str] = {}
    for name, value in islice(_parameters(operator), MAX_PARAMETERS):
        found.setdefault(plain(name)[:_NAME], plain(str(value))[:_VALUE])
    return [[name, str(value)] for name, value in redact(found).items()]


def _parameters(operator: Any) -> Iterator[tuple[str, Any]]:
    job = getattr(operator, "job", None)
    job = job if isinstance(job, Mapping) else {}
    given = getattr(operator, "args", None)
    yield from _options(_list(job.get("args") if given is None else given))
    named = getattr(operator, "op_kwargs", None)
    yield from ((str(name), value) for name, value in (named if isinstance(named, Mapping) else {}).items())
    yield from _positional(_list(getattr(operator, "op_args", None)))
    for name in _FIELDS:
        value = getattr(operator, name, None)
        value = job.get(name) if value is None else value
        if isinstance(value, str | int | float):
            yield name, value


def _options(words: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yields the options of a command line, and then the positional arguments.

    An option has the form `--name value`, `--name=value` or `--flag`.
    """
    texts, others, index = [str(word) for word in words], [], 0
    while index < len(texts):
        word = texts[index]
        name, equals, value = word.lstrip("-").partition("=")
        index += 1
        if not _is_option(word):
            others.append(word)
        elif equals:
            yield name, value
        elif index < len(texts) and not _is_option(texts[index]):
            yield name, texts[index]
            index += 1
        else:
            yield name, "yes"
    yield from _positional(others)


def _is_option(word: str) -> bool:
    """Returns whether an argument of a command line is an option. A negative number is not an option."""
    return word.startswith("-") and len(word.lstrip("-")) > 0 and not word.lstrip("-")[0].isdigit() and word[1] != "."


def _positional(words: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"argument {number}", word) for number, word in enumerate(words, 1))


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
