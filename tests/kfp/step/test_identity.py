"""The identity of a step: the same in every retry, different for every step and every item of a loop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepset.errors import InfrastructureError
from stepset_kfp.step.owner import Identity, identity_of
from tests.kfp.node_names import step_node

COUNTS = st.integers(0, 10**6)
# Names of tasks are DNS labels, because KFP sanitizes them.
LEVELS = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
ITEMS = st.integers(0, 999).map(lambda item: f"({item}:{item})")


def identity(node: str, run: str = "8d0f3f0e") -> Identity:
    """The identity of the step whose pod has this node's name."""
    metadata = {
        "name": "pod",
        "namespace": "kubeflow",
        "labels": {"pipeline/runid": run},
        "annotations": {"workflows.argoproj.io/node-name": node},
    }
    return identity_of({"metadata": metadata})


@pytest.mark.parametrize(
    "retried",
    [
        step_node(try_number=2),
        step_node(above=1),
        step_node(above=2, try_number=1),
        step_node().replace("root(0)", "root(1)"),
        step_node().replace("digits-x7k2p(0)", "digits-x7k2p(1)"),
        step_node().replace("(0)", ""),  # KFP 2.14 to 2.16.1: no level but the executor is retried
    ],
)
def test_a_retry_at_any_level_has_the_identity_of_the_first_try(retried: str) -> None:
    assert identity(retried) == identity(step_node())


def test_an_item_of_a_loop_is_a_step_of_its_own_and_keeps_its_number_in_a_retry() -> None:
    name = "sweep-x7k2p(0).root(0).for-loop-1(0).iteration-iterations({}:{})({}).train(0).executor({})"
    first, second, retried = (name.format(0, 0, 0, 0), name.format(1, 1, 0, 0), name.format(0, 0, 1, 2))
    assert identity(first) != identity(second)
    assert identity(first) == identity(retried)


@given(st.lists(st.tuples(LEVELS, st.one_of(st.just(""), ITEMS)), min_size=1, max_size=6), st.data())
def test_only_counters_of_retries_are_ignored(levels: list[tuple[str, str]], data: st.DataObject) -> None:
    def name() -> str:
        return ".".join(f"{level}{item}({data.draw(COUNTS)})" for level, item in levels)

    assert identity(name()) == identity(name())
    assert identity(name()).node == ".".join(f"{level}{item}" for level, item in levels)


def test_other_steps_and_other_pipeline_runs_have_other_identities() -> None:
    names = {identity(step_node(task)).owner for task in ("train", "train-2", "evaluate")}
    assert len(names | {identity(step_node(), run="other").owner}) == 4


def test_a_pod_without_argos_annotation_is_refused() -> None:
    with pytest.raises(InfrastructureError, match=r"workflows\.argoproj\.io/node-name"):
        identity_of({"metadata": {"name": "pod", "namespace": "kubeflow", "labels": {"pipeline/runid": "1"}}})
