"""Checks the constant inputs of a task when the pipeline is compiled, by the rules of `stepset validate`.

Some values of a job are unknown when the pipeline is compiled. Run-time values are known only in the step. If a job has
no `resources_per_node`, the settings of the task may add resources after the check.

Therefore the check builds two jobs. In both jobs, placeholder values (stand-ins) replace the unknown values. The two
jobs have different stand-ins, except that a stand-in for a list or a mapping is always empty. If an unknown value
causes a problem, there are two cases. Either only one of the two jobs has the problem, or the error messages of the two
jobs contain different stand-ins. Therefore a problem is reported only if both jobs have the problem with the same
message. The step checks the job again with all values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepset.defaults import JOB_FIELDS, LIST_FIELDS, MAPPING_FIELDS
from stepset.errors import BadInputError
from stepset.frameworks import make_plan
from stepset.log_sources import check_ranks
from stepset.plan.ranks import max_ranks
from stepset.spec.load import check_known_fields, parse_job
from stepset.spec.names import check_dns_1035
from stepset.targets.request import TARGET_NAMES
from stepset.targets.validation.preflight import check
from stepset.watch.present.sources import ranks_to_log
from stepset_kfp.authoring.encoding import WORDS, WORKSPACE, Encoder, has_runtime_value, is_channel, text_parts, type_of
from stepset_kfp.encoding import with_decoded_inputs
from stepset_kfp.job_inputs import job_mapping, not_mappings
from stepset_kfp.options import check_options, problems_of
from stepset_kfp.step.owner import Identity
from stepset_kfp.task_config import WORKSPACE_MOUNT, with_task_config

if TYPE_CHECKING:
    from kfp.dsl.pipeline_channel import PipelineChannel

_INPUTS = ("job", "shm", "queue_name", *JOB_FIELDS)
_STRUCTURED = frozenset(
    {"job", *LIST_FIELDS, *MAPPING_FIELDS} - {"args", "resources_per_node", "labels", "annotations"}
)
"""Inputs that affect many checks. If the whole value of such an input is a run-time value, the job is not checked."""
_IN_POD = "$"
"""The stand-in for an item of a command, or for the value of a variable. No check compares this string."""
_TEXTS = {
    "framework": ("plain", "torch"),
    "procs_per_node": ("1", "3"),
    "script": ("a.py", "b.py"),
    "function": ("pass", "0"),
    "checkpoint_dir": ("/a", "/b"),
    "hang": ("off", "{after: 1m}"),
    "deadline": ("1h", "2h"),
    "termination_grace_period": ("1m", "2m"),
    "ttl": ("1h", "2h"),
    "security": ("", "restricted"),
    "agent": ("auto", "true"),
    "shm": ("1Gi", "2Gi"),
}
"""For each of these inputs, the two stand-ins for a string. In other inputs, the two stand-ins are `a` and `b`."""
_VALUES: Mapping[str, tuple[Any, Any]] = {
    "Integer": (1, 3),
    "Float": (0.5, 1.5),
    "Boolean": (False, True),
    "List": ([], []),
    "Dict": ({}, {}),
}
"""For each of these types, the two stand-ins for a run-time value."""
_FIELD = re.compile(r"[a-z_]+(?=[.:])")


def check_job(arguments: Mapping[str, Any], *, on_cluster: bool, variables: Sequence[Mapping[str, Any]] = ()) -> None:
    """Raises BadInputError if the constant inputs of a task are invalid for all values of the other inputs.

    Args:
        arguments: the inputs of the component.
        on_cluster: whether the job may run on a cluster. If True, the function also checks that the target supports the
            job.
        variables: the environment variables of the task, if the settings of the task are known.
    """
    options = {name: value for name, value in arguments.items() if not has_runtime_value(value)}
    found = [*problems_of(check_options, options), *problems_of(check_loop_name, arguments.get("name"))]
    if not any(is_channel(arguments.get(name)) for name in _STRUCTURED):
        target = arguments.get("target") or "jobset"
        known = target if on_cluster and not has_runtime_value(target) and target in TARGET_NAMES else None
        first, second = ([*_StandIns(arguments, variables, which).problems(known)] for which in (0, 1))
        unknown = {name for name, value in _fields(arguments) if name not in WORDS and has_runtime_value(value)}
        found += [each for each in first if each in second and _field_of(each) not in unknown]
    if found:
        raise BadInputError(*dict.fromkeys(found))


def _fields(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the name and the value of each field of the input `job`, and of each input of the component."""
    yield from (arguments.get("job") or {}).items()
    yield from arguments.items()


def _field_of(problem: str) -> str | None:
    """Returns the field name at the start of an error message, or None if the message does not start with a field."""
    found = _FIELD.match(problem)
    return found and found[0]


@dataclass(frozen=True)
class _StandIns:
    """The inputs of a task. Stand-ins replace the unknown values.

    Attributes:
        arguments: the inputs of the component.
        variables: the environment variables of the task.
        which: 0 or 1. Selects one of the two stand-ins for each unknown value.
    """

    arguments: Mapping[str, Any]
    variables: Sequence[Mapping[str, Any]]
    which: int

    def problems(self, target: str | None) -> tuple[str, ...]:
        """Returns the problems of the job.

        `target`: the name of the target that must support the job. If None, no target is checked.
        """
        from kfp.dsl import TaskConfig

        given = {name: self._input(name, value) for name, value in self.arguments.items() if name in _INPUTS}
        try:
            inputs = with_decoded_inputs(Encoder().inputs(given), {})
            if wrong := not_mappings(inputs):
                right = {name: value for name, value in inputs.items() if name not in wrong}
                others = problems_of(lambda job: check_known_fields(job, wrong), job_mapping(right))
                return (*wrong.values(), *others)
            accelerator = {"limits": {"nvidia.com/gpu": "1"}} if self.which == 1 else None
            settings = TaskConfig(env=self.variables, resources=accelerator)
            mapping, _ = with_task_config(job_mapping(inputs), settings)
            # A missing image causes only a warning (cluster_checks.py).
            job = parse_job({"image": "registry.example/image", **mapping})
            plan = make_plan(job)
            if (size := max_ranks(plan)) is not None:
                check_ranks(self._ranks(), size, "the job", "log_ranks")
            if target is not None:
                check(job, plan, target, Identity("", "", "", None).run_name(job.name))
        except BadInputError as error:
            return error.problems
        return ()

    def _ranks(self) -> frozenset[int]:
        """Returns the ranks of the input `log_ranks`. The set is empty if the input selects all or no ranks."""
        log_ranks = self.arguments.get("log_ranks") or "failed"
        return frozenset() if has_runtime_value(log_ranks) else ranks_to_log(log_ranks) or frozenset()

    def _input(self, name: str, value: Any) -> Any:
        if name == "job":
            return {field: self._input(field, each) for field, each in value.items()}
        if name == "command" and isinstance(value, (list, tuple)) and value and has_runtime_value(value[0]):
            return [(_IN_POD, "python3")[self.which], *self._value(name, value[1:])]
        if name == "env" and isinstance(value, Mapping):
            return {self._value("", key): _IN_POD if has_runtime_value(each) else each for key, each in value.items()}
        return self._value(name, value)

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return "".join(part if isinstance(part, str) else str(part) for part in self._parts(name, value))
        if isinstance(value, Mapping):
            return {self._value("", key): self._value("", each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [_IN_POD if name in WORDS and is_channel(each) else self._value(name, each) for each in value]
        return self._channel(name, value) if is_channel(value) else value

    def _parts(self, name: str, text: str) -> Iterator[Any]:
        for part in text_parts(text):
            if not has_runtime_value(part):
                yield part
            elif not is_channel(part) and part == WORKSPACE:  # `==` of a channel returns a condition of KFP
                yield WORKSPACE_MOUNT
            else:
                yield _IN_POD if name in WORDS else self._channel(name, part)

    def _channel(self, name: str, value: PipelineChannel | str) -> Any:
        """Returns the stand-in for a run-time value or a placeholder."""
        return _VALUES.get(type_of(value), _TEXTS.get(name, ("a", "b")))[self.which]


def check_loop_name(name: object) -> None:
    """Replaces the loop's item in `name` by each constant, and checks the resulting names.

    Raises BadInputError if one of the resulting names is not valid for a job.

    A name that contains other run-time values, or items of several loops, is not checked.
    """
    for text in _names(name) if isinstance(name, str) else ():
        try:
            check_dns_1035(text)
        except ValueError as error:
            raise BadInputError(
                f"name: {error}; leave name out, or loop over mappings of text that contain a name, such as"
                ' {"lr": "0.1", "run": "fit-1"}, with name=item.run'
            ) from error


def _names(name: str) -> Iterator[str]:
    """Yields the name for each item of the loop."""
    from kfp.dsl.for_loop import LoopArgumentVariable, LoopParameterArgument

    parts = list(text_parts(name))
    channels = [part for part in parts if is_channel(part)]
    # A loop argument returns a field for every attribute name. Therefore `isinstance` is used instead of `hasattr`.
    owners = [each.loop_argument if isinstance(each, LoopArgumentVariable) else each for each in channels]
    loops = {id(loop): loop for loop in owners}
    if len(loops) != 1 or not isinstance(loop := next(iter(loops.values())), LoopParameterArgument):
        return
    for item in loop.items_or_pipeline_channel if loop.is_with_items_loop_argument else ():
        values = [
            item.get(part.subvar_name) if isinstance(part, LoopArgumentVariable) else item if is_channel(part) else part
            for part in parts
        ]
        # Names with a float such as 1.0 are not checked, because the step may write this float differently from `str`.
        if all(isinstance(value, (str, int)) or (isinstance(value, float) and value % 1) for value in values):
            yield "".join(map(str, values))
