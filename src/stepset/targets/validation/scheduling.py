"""Detects priorities, tolerations and affinities that an API server would reject.

In an affinity, only the field names of the first two levels are checked. `stepset validate --server` checks the whole
affinity.

Source: kubernetes v1.36 pkg/apis/core/validation/validation.go (ValidateTolerations), k8s.io/api v0.36 core/v1/types.go
(Affinity, Toleration).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.plan.model import LAUNCHER, LaunchPlan
from stepset.spec.base import nearest
from stepset.spec.job import TrainingJob
from stepset.spec.parts import Placement
from stepset.spec.template import is_whole, pod_spec
from stepset.targets.validation.syntax import is_label_key, is_label_value, label_problems, name_problem
from stepset.unstructured import rows

_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
_COMPARISONS = ("Gt", "Lt")
"""Operators of tolerations that require the feature gate TaintTolerationComparisonOperators (alpha in v1.35)."""
_OPERATORS = ("Equal", "Exists", *_COMPARISONS)
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_AFFINITIES = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


def scheduling_problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """Yields one line for each problem.

    The function checks `scheduling` of the job, of its roles and of the launcher, and the tolerations in
    `pod_template`.
    """
    scheduling = job.scheduling
    priority = scheduling.priority_class
    if priority is not None and (wrong := name_problem("scheduling.priority_class", priority)):
        yield wrong
    yield from _placement(scheduling, "scheduling")
    for role in job.roles:
        yield from _placement(role.scheduling, f"roles.{role.name}.scheduling")
    yield from _placement(scheduling.launcher, "scheduling.launcher")
    yield from _in_template(job.pod_template)
    launchers = [group for group in plan.groups if group.name == LAUNCHER and not group.in_world]
    if scheduling.launcher != Placement() and not launchers:
        yield "scheduling.launcher: this job has no launcher besides its nodes; leave it out"
    exclusive = scheduling.topology.exclusive
    if exclusive is not None and not is_label_key(exclusive):
        yield f"scheduling.topology.exclusive: {exclusive!r} is not the label of a node; write it like example.com/rack"


def _placement(placement: Placement, place: str) -> Iterator[str]:
    yield from label_problems(f"{place}.node_selector", placement.node_selector)
    for number, toleration in enumerate(placement.tolerations):
        for wrong in _toleration(toleration):
            yield f"{place}.tolerations.{number}: {wrong}"
    yield from _affinity(placement.affinity, f"{place}.affinity")


def _in_template(pod_template: Mapping[str, Any]) -> Iterator[str]:
    """Yields the problems of the tolerations in `pod_template`.

    Tolerations with unknown fields or values of wrong types are skipped, because other checks report them.
    """
    place = "pod_template.spec" if is_whole(pod_template) else "pod_template"
    for number, toleration in enumerate(rows(pod_spec(pod_template), "tolerations")):
        texts = (value for field, value in toleration.items() if field != "tolerationSeconds" and value is not None)
        if toleration.keys() <= set(_TOLERATION) and all(isinstance(value, str) for value in texts):
            for wrong in _toleration(toleration):
                yield f"{place}.tolerations.{number}: {wrong}"


def _toleration(given: Mapping[str, Any]) -> Iterator[str]:
    for field in given:
        if field not in _TOLERATION:
            yield f"unknown field {field!r}; {nearest(field, _TOLERATION)}"
    key, value, effect = (given.get(field) or "" for field in ("key", "value", "effect"))
    operator = given.get("operator") or "Equal"
    texts = {"key": key, "value": value, "effect": effect, "operator": operator}
    if wrong := [field for field, text in texts.items() if not isinstance(text, str)]:
        yield f"{' and '.join(wrong)} must be text; put it in quotes"
        return
    if operator not in _OPERATORS:
        yield f"operator {operator!r} is not known; use one of {', '.join(_OPERATORS)}"
    if key and not is_label_key(key):
        yield f"{key!r} is not the key of a taint; write it like example.com/name"
    if not key and operator != "Exists":
        yield (
            "has no key: a toleration without a key matches every taint and requires operator: Exists; give key, or"
            " that operator"
        )
    if operator == "Exists" and value:
        yield f"operator Exists takes no value; leave out {value!r}"
    if operator == "Equal" and not is_label_value(value):
        yield f"{value!r} is not the value of a taint; use letters, digits, '-', '_' and '.'"
    if operator in _COMPARISONS and not _is_int64(value):
        yield f'operator {operator} compares whole numbers; write value as one, in quotes, such as "900"'
    if effect and effect not in _EFFECTS:
        yield f"effect {effect!r} is not known; use one of {', '.join(_EFFECTS)}"
    seconds = given.get("tolerationSeconds")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int)):
        yield f"tolerationSeconds {seconds!r} is not a whole number; give seconds"
    if seconds is not None and effect != "NoExecute":
        yield "tolerationSeconds is valid only with effect: NoExecute; leave it out, or give that effect"


def _is_int64(text: str) -> bool:
    """Returns whether a string is an integer in the form that the API server requires.

    The integer must be decimal, must fit into 64 bits, and must not begin with `0` or `+`.
    """
    return _INTEGER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def _affinity(given: Mapping[str, Any], place: str) -> Iterator[str]:
    for kind, rules in given.items():
        if kind not in _AFFINITIES:
            yield f"{place}: unknown field {kind!r}; {nearest(kind, _AFFINITIES)}"
        elif rules is not None and not isinstance(rules, Mapping):
            yield f"{place}.{kind}: is not a mapping; write {{{_TERMS[0]}: ...}}"
        else:
            for term in rules or {}:
                if term not in _TERMS:
                    yield f"{place}.{kind}: unknown field {term!r}; {nearest(str(term), _TERMS)}"
