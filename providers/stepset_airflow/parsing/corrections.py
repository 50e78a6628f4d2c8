"""Suggests parameters of DistributedTrainOperator that replace arguments of KubernetesPodOperator.

Each suggestion is a parameter with a value. If the values of the task can be converted and the result is valid, the
suggestion contains the converted values. Otherwise the suggestion contains an example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stepset_airflow.airflow_internals import redact
from stepset_airflow.parsing.kpo_parameters import KPO_PARAMETERS
from stepset_airflow.parsing.kpo_values import TORCHRUN, Arguments, equivalents_of, in_python, merged

_LIMIT = 1000
"""Maximum length of a converted value. If the value is longer, the suggestion contains an example."""


_NOTHING = "this value needs no equivalent; remove it"


@dataclass(frozen=True)
class Corrections:
    """Maps a task's arguments of KubernetesPodOperator to parameters of DistributedTrainOperator.

    Args:
        foreign: the arguments of KubernetesPodOperator or KubernetesJobOperator.
        own: the arguments of the task that are parameters of DistributedTrainOperator.
        equivalents: a mapping from the name of each argument in `foreign` to the arguments that replace this argument.
            If an argument cannot be converted, the mapping does not contain its name.
    """

    foreign: Mapping[str, Any]
    own: Mapping[str, Any]
    equivalents: Mapping[str, Arguments]

    @classmethod
    def of(
        cls, foreign: Mapping[str, Any], own: Mapping[str, Any], problems: Callable[[Corrections], list[str]]
    ) -> Corrections:
        """Creates the corrections. Converted values that are too long or invalid are not used.

        `problems` is a function that returns the problems of the corrected arguments.
        """
        made = cls(foreign, own, equivalents_of(foreign, own))
        made = made._without({name for name, value in made._suggested().items() if len(in_python(value)) > _LIMIT})
        found = set(problems(made)) - set(problems(cls(foreign, own, {}))) if made.equivalents else set()
        return made._without({problem.partition(":")[0].partition(".")[0] for problem in found})

    def _without(self, parameters: set[str]) -> Corrections:
        kept = {name: each for name, each in self.equivalents.items() if not parameters & each.keys()}
        return Corrections(self.foreign, self.own, kept)

    def arguments(self) -> Arguments:
        """Returns the corrected arguments of the task.

        If an argument of KubernetesPodOperator cannot be converted, no replacement is added. If the task already sets
        the parameter that would replace the argument, the returned arguments contain the task's value. A value of None
        is omitted.
        """
        unknown = {
            each for name in self.foreign if name not in self.equivalents for each in KPO_PARAMETERS[name].equivalents
        }
        kept = {name: value for name, value in self.own.items() if value is not None or name not in unknown}
        return {**kept, **self._suggested()}

    def _suggested(self) -> Arguments:
        found = {name: value for name, value in self.own.items() if isinstance(value, (Mapping, list))}
        written: Arguments = {}
        for equivalent in self.equivalents.values():
            for name, value in equivalent.items():
                before = written.get(name, found.get(name))
                written[name] = value if before is None else merged(before, value)
        return written

    def lines(self) -> Iterator[str]:
        """Yields the lines of the error message.

        A line contains either a suggestion, or an argument that cannot be converted.
        """
        sources: dict[tuple[str, ...], list[str]] = {}
        for parameter in self._suggested():
            names = tuple(name for name, each in self.equivalents.items() if parameter in each)
            sources.setdefault(names, []).append(parameter)
        for name in self.foreign:
            if name not in self.equivalents:
                yield f"{name}: {KPO_PARAMETERS[name].error()}"
            elif not self.equivalents[name]:
                yield f"{name}: a parameter of {KPO_PARAMETERS[name].operator}; {_NOTHING}"
            yield from (self._line(names, sources[names]) for names in sources if names[0] == name)

    def _line(self, names: tuple[str, ...], parameters: list[str]) -> str:
        rows = [KPO_PARAMETERS[name] for name in names]
        kind = "a parameter" if len(rows) == 1 else "parameters"
        operators = " and ".join(dict.fromkeys(row.operator for row in rows))
        suggested = self._suggested()
        write = ", ".join(f"{parameter}={_shown(parameter, suggested[parameter])}" for parameter in parameters)
        renamed = len(rows) == 1 and rows[0].path == (parameters[0],)
        note = f": {rows[0].note}" if renamed and rows[0].note else ""
        if names == ("cmds",) and suggested.get("command", [""])[0] == TORCHRUN != self.foreign["cmds"][0]:
            note = ": num_nodes and procs_per_node determine how many processes torchrun starts"
        return f"{', '.join(names)}: {kind} of {operators}; write {write}{note}"


def _shown(parameter: str, value: Any) -> str:
    """Returns a value as Python source code. The secrets that Airflow masks in logs are masked."""
    if parameter == "env" and isinstance(value, Mapping):
        value = {name: redact({name: each})[name] if isinstance(each, str) else each for name, each in value.items()}
    return str(redact(in_python(value)))
