"""Rules that hold for the plan of any job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.frameworks import make_plan
from stepset.plan.explain import explain_plan
from stepset.plan.model import EnvEntry, LaunchPlan, PodGroup
from stepset.plan.values import SecretValue, Text
from stepset.spec import TrainingJob, parse_job
from stepset.targets.names import PodNames
from tests.strategies import jobs

WHOLE = settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

# The reasons for which a valid job may have no plan. Any other error is a defect.
REASONS = (
    r"procs_per_node: gpu, but resources_per_node has no accelerator; add for example gpus: 1",
    r"procs_per_node: \d+ processes per node are more than 4096; check procs_per_node, and resources_per_node\.cpu",
    r"procs_per_node: (auto|gpu) cannot count the processes: the devices of .* differ in size",
    r"resources_per_node: \S+: \S+ is not a whole number; devices cannot be divided",
    r"agent: only stepset's agent can ",
    r"args: TorchTune has no LoRA recipe for several nodes",
    r"procs_per_node: QLoRA of .* needs one device",
    r"command: \S+ would start its ranks separately in each of the \d+ nodes",
    r"command: \S+ starts the ranks of a node itself, and stepset would start it \d+ times",
    r"command: torchrun without --nnodes would train in each of the \d+ nodes alone",
    r"network.port: \d+ is also the port of the nodes' ssh servers",
)


def planned(job: TrainingJob) -> LaunchPlan | None:
    """Returns the job's plan, or None if it has none for a documented reason."""
    try:
        return make_plan(job)
    except BadInputError as error:
        assert all(re.match("|".join(REASONS), problem) for problem in error.problems), error
        return None


def names_of(plan: LaunchPlan, job: TrainingJob) -> PodNames:
    return PodNames(plan, job.name, job.network.subdomain or job.name)


# --- rules, each for one job and its plan ----------------------------------------------------------------------------


def the_same_job_has_an_equal_plan(job: TrainingJob, plan: LaunchPlan) -> None:
    assert make_plan(parse_job(job.to_dict())) == plan


def no_variable_is_set_twice_in_a_group(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        assert not [name for name, times in Counter(e.name for e in group.env).items() if times > 1]


def no_variable_torchrun_reads_is_empty(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        for entry in group.env:
            if entry.name.startswith("PET_") and isinstance(entry.value, Text):
                assert any(entry.value.parts)
                assert entry.pod_value is None or any(entry.pod_value.parts)  # type: ignore[union-attr]  # a Text


def stepsets_variables_are_first_and_the_jobs_in_its_order(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        if group.in_world or group.name == "launcher":
            own = [e.name for e in group.env if e.origin == "job" and e.replaced is None]
            last = [e.name for e in group.env][len(group.env) - len(own) :]
            assert own == last == [name for name in job.env if name in own]


def an_overridden_variable_keeps_stepsets_position(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        for entry in group.env:
            if entry.replaced is not None:
                assert entry.origin == "job" and job.env[entry.name].override


def roles_get_only_their_own_variables(job: TrainingJob, plan: LaunchPlan) -> None:
    for role in job.roles:
        group = plan.group(role.name)
        assert not group.in_world and group.agent is None and group.ports == ()
        assert [e.name for e in group.env] == list(role.env)
        assert all(e.origin == "job" for e in group.env)
        assert group.count == role.replicas
        assert (group.image, group.resources) == (role.image, role.resources)


def the_world_is_num_nodes_pods(job: TrainingJob, plan: LaunchPlan) -> None:
    assert plan.world.num_nodes == job.num_nodes
    assert sum(group.count for group in plan.groups if group.in_world) == job.num_nodes
    if isinstance(job.procs_per_node, int) and job.framework.kind != "jax":
        assert plan.world.size == job.num_nodes * job.procs_per_node


def success_refers_to_existing_pods(job: TrainingJob, plan: LaunchPlan) -> None:
    assert 1 <= plan.success.count <= plan.group(plan.success.group).count


def groups_start_after_groups_that_precede_them(job: TrainingJob, plan: LaunchPlan) -> None:
    seen: set[str] = set()
    for group in plan.groups:
        assert {after.group for after in group.start_after} <= seen
        assert group.name not in seen
        seen.add(group.name)


def the_world_starts_after_its_roles(job: TrainingJob, plan: LaunchPlan) -> None:
    before = {role.name for role in job.roles if role.before}
    first = next(group for group in plan.groups if group.name in ("node", "launcher"))
    groups = {group.name: group for group in plan.groups}
    awaited = {after.group for after in first.start_after}
    assert awaited <= before
    while more := {after.group for name in awaited for after in groups[name].start_after} - awaited:
        awaited |= more
    assert awaited == before, "a role may wait for another role, for which the nodes then need not wait themselves"
    assert all(after.condition == "Complete" for after in first.start_after)


def every_place_can_be_resolved(job: TrainingJob, plan: LaunchPlan) -> None:
    """Ports, files and pods in a text exist."""
    names = names_of(plan, job)
    for group in plan.groups:
        for word in (*group.command, *group.args, *(e.value for e in group.env if isinstance(e.value, Text))):
            for part in word.parts:
                assert isinstance(names(part), str)
    for file in plan.files:
        assert {group for group in file.groups if plan.group(group)}
        assert all(isinstance(names(part), str) for line in file.lines for part in line.parts)


def every_variable_has_a_rule(job: TrainingJob, plan: LaunchPlan) -> None:
    assert all(entry.rule for group in plan.groups for entry in group.env)


def every_port_has_a_listener_and_a_number(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        assert set(group.ports) <= set(plan.ports)
    assert all(1 <= number <= 65535 for number in plan.ports.values())


def only_the_agent_starts_several_processes(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        needs_agent = [e for e in group.env if isinstance(e.value, Text) and e.value.needs_agent and not e.pod_value]
        assert not needs_agent or group.agent is not None
        assert group.agent is None or group.agent.processes >= 1


def explain_has_a_row_for_every_variable(job: TrainingJob, plan: LaunchPlan) -> None:
    rows = explain_plan(plan, names_of(plan, job))
    entries: list[tuple[PodGroup, EnvEntry]] = [(group, entry) for group in plan.groups for entry in group.env]
    assert len(rows) == len(entries)
    for row, (group, entry) in zip(rows, entries, strict=True):
        assert (row.group, row.count, row.variable, row.rule) == (group.name, group.count, entry.name, entry.rule)
        assert (row.origin == "job") == (entry.origin == "job")
        assert bool(row.replaced) == (entry.replaced is not None)
        if isinstance(entry.value, SecretValue):
            assert row.value == f"<secret {entry.value.secret}, key {entry.value.key}>"


RULES: list[Callable[[TrainingJob, LaunchPlan], None]] = [
    the_same_job_has_an_equal_plan,
    no_variable_is_set_twice_in_a_group,
    no_variable_torchrun_reads_is_empty,
    stepsets_variables_are_first_and_the_jobs_in_its_order,
    an_overridden_variable_keeps_stepsets_position,
    roles_get_only_their_own_variables,
    the_world_is_num_nodes_pods,
    success_refers_to_existing_pods,
    groups_start_after_groups_that_precede_them,
    the_world_starts_after_its_roles,
    every_place_can_be_resolved,
    every_variable_has_a_rule,
    every_port_has_a_listener_and_a_number,
    only_the_agent_starts_several_processes,
    explain_has_a_row_for_every_variable,
]


@WHOLE
@given(jobs())
def test_every_rule_holds_for_any_job(job: TrainingJob) -> None:
    plan = planned(job)
    if plan is not None:
        for rule in RULES:
            rule(job, plan)


def test_most_valid_jobs_have_a_plan() -> None:
    """Otherwise the rules above would be tested with few plans."""
    count: Counter[bool] = Counter()

    @WHOLE
    @given(jobs())
    def draw(job: TrainingJob) -> None:
        count[planned(job) is not None] += 1

    draw()
    assert count[True] > 0.8 * count.total() and count.total() >= 100


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(jobs(), st.sampled_from(["STEPSET_JOB", "STEPSET_RESULT_FILE", "STEPSET_CHECKPOINT_DIR", "STEPSET_RESUME_FROM"]))
def test_stepsets_own_names_are_always_reserved(job: TrainingJob, name: str) -> None:
    if planned(job) is None or name in job.env:
        return
    with pytest.raises(BadInputError, match=f"^env.{name}: reserved, because"):
        make_plan(parse_job({**job.to_dict(), "env": {name: "mine"}}))
