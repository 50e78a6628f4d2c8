"""What holds for the plan of any job whatever."""

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

# Why a valid job may have no plan. Everything else is a defect.
REASONS = (
    r"procs_per_node: gpu, but resources_per_node has no accelerator; add for example gpus: 1",
    r"procs_per_node: \d+ processes a node are more than 4096; check procs_per_node and resources_per_node\.cpu",
    r"agent: only stepset's agent can ",
    r"args: TorchTune has no LoRA recipe for several nodes",
    r"procs_per_node: QLoRA of .* needs one device",
)


def planned(job: TrainingJob) -> LaunchPlan | None:
    """The job's plan, or None where there is none for a documented reason."""
    try:
        return make_plan(job)
    except BadInputError as error:
        assert all(re.match("|".join(REASONS), problem) for problem in error.problems), error
        return None


def names_of(plan: LaunchPlan, job: TrainingJob) -> PodNames:
    return PodNames(plan, job.name, job.network.subdomain or job.name)


# --- sentences, each for one job and its plan ------------------------------------------------------------------------


def the_same_job_has_an_equal_plan(job: TrainingJob, plan: LaunchPlan) -> None:
    assert make_plan(parse_job(job.to_dict())) == plan


def no_variable_stands_twice_in_a_group(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        assert not [name for name, times in Counter(e.name for e in group.env).items() if times > 1]


def no_variable_torchrun_reads_is_empty(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        for entry in group.env:
            if entry.name.startswith("PET_") and isinstance(entry.value, Text):
                assert any(entry.value.parts)
                assert entry.pod_value is None or any(entry.pod_value.parts)  # type: ignore[union-attr]  # a Text


def stepsets_variables_stand_first_and_the_jobs_in_its_order(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        if group.in_world or group.name == "launcher":
            own = [e.name for e in group.env if e.origin == "job" and e.replaced is None]
            last = [e.name for e in group.env][len(group.env) - len(own) :]
            assert own == last == [name for name in job.env if name in own]


def what_the_job_takes_replaces_stepsets_in_its_place(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        for entry in group.env:
            if entry.replaced is not None:
                assert entry.origin == "job" and job.env[entry.name].override


def roles_get_what_they_say_and_no_more(job: TrainingJob, plan: LaunchPlan) -> None:
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


def success_is_that_of_pods_there_are(job: TrainingJob, plan: LaunchPlan) -> None:
    assert 1 <= plan.success.count <= plan.group(plan.success.group).count


def groups_start_after_groups_that_stand_before_them(job: TrainingJob, plan: LaunchPlan) -> None:
    seen: set[str] = set()
    for group in plan.groups:
        assert {after.group for after in group.start_after} <= seen
        assert group.name not in seen
        seen.add(group.name)


def roles_that_come_before_hold_back_the_first_of_the_world(job: TrainingJob, plan: LaunchPlan) -> None:
    before = {role.name for role in job.roles if role.before}
    first = next(group for group in plan.groups if group.name in ("node", "launcher"))
    assert {after.group for after in first.start_after} == before
    assert all(after.condition == "Complete" for after in first.start_after)


def every_place_can_be_filled_in(job: TrainingJob, plan: LaunchPlan) -> None:
    """Ports, files and pods that a text names are there."""
    names = names_of(plan, job)
    for group in plan.groups:
        for word in (*group.command, *group.args, *(e.value for e in group.env if isinstance(e.value, Text))):
            for part in word.parts:
                assert isinstance(names(part), str)
    for file in plan.files:
        assert {group for group in file.groups if plan.group(group)}
        assert all(isinstance(names(part), str) for line in file.lines for part in line.parts)


def every_variable_says_its_rule(job: TrainingJob, plan: LaunchPlan) -> None:
    assert all(entry.rule for group in plan.groups for entry in group.env)


def ports_are_listened_on_and_numbered(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        assert set(group.ports) <= set(plan.ports)
    assert all(1 <= number <= 65535 for number in plan.ports.values())


def only_the_agent_starts_several_processes(job: TrainingJob, plan: LaunchPlan) -> None:
    for group in plan.groups:
        needs_agent = [e for e in group.env if isinstance(e.value, Text) and e.value.known_in_pod and not e.pod_value]
        assert not needs_agent or group.agent is not None
        assert group.agent is None or group.agent.processes >= 1


def explain_has_a_row_for_every_variable_and_agrees(job: TrainingJob, plan: LaunchPlan) -> None:
    rows = explain_plan(plan, names_of(plan, job))
    entries: list[tuple[PodGroup, EnvEntry]] = [(group, entry) for group in plan.groups for entry in group.env]
    assert len(rows) == len(entries)
    for row, (group, entry) in zip(rows, entries, strict=True):
        assert (row.group, row.count, row.variable, row.rule) == (group.name, group.count, entry.name, entry.rule)
        assert (row.origin == "job") == (entry.origin == "job")
        assert bool(row.replaced) == (entry.replaced is not None)
        if isinstance(entry.value, SecretValue):
            assert row.value == f"<secret {entry.value.secret}, key {entry.value.key}>"


SENTENCES: list[Callable[[TrainingJob, LaunchPlan], None]] = [
    the_same_job_has_an_equal_plan,
    no_variable_stands_twice_in_a_group,
    no_variable_torchrun_reads_is_empty,
    stepsets_variables_stand_first_and_the_jobs_in_its_order,
    what_the_job_takes_replaces_stepsets_in_its_place,
    roles_get_what_they_say_and_no_more,
    the_world_is_num_nodes_pods,
    success_is_that_of_pods_there_are,
    groups_start_after_groups_that_stand_before_them,
    roles_that_come_before_hold_back_the_first_of_the_world,
    every_place_can_be_filled_in,
    every_variable_says_its_rule,
    ports_are_listened_on_and_numbered,
    only_the_agent_starts_several_processes,
    explain_has_a_row_for_every_variable_and_agrees,
]


@WHOLE
@given(jobs())
def test_every_sentence_holds_for_any_job(job: TrainingJob) -> None:
    plan = planned(job)
    if plan is not None:
        for sentence in SENTENCES:
            sentence(job, plan)


def test_nearly_every_valid_job_has_a_plan() -> None:
    """Else the sentences above would hold for nothing."""
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
