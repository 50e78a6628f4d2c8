"""Chips of AWS Neuron, whose number of cores depends on the instance."""

from __future__ import annotations

import pytest

from stepset.errors import BadInputError
from stepset.targets.request import TARGET_NAMES
from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import agent_config

ODD_JOB = OddJob(
    job={
        "framework": {"kind": "torch", "launcher": "none"},
        "resources_per_node": {"aws.amazon.com/neuron": 16, "vpc.amazonaws.com/efa": 8},
    },
    expected="stepset refuses to count the processes, because it does not know the number of cores.",
    source="AWS Neuron 2.31, Neuron device plugin: all cores of a device are allocated to the container",
    refused=everywhere("aws.amazon.com/neuron: a chip of 2 to 8 logical NeuronCores"),
)


def test_the_error_distinguishes_physical_and_logical_cores() -> None:
    with pytest.raises(
        BadInputError, match=r"Trn2: 8 physical cores, 4 logical ones by default\); each process uses one"
    ):
        ODD_JOB.render("jobset")


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_it_is_rendered_with_a_number(target: str) -> None:
    assert agent_config(ODD_JOB.render(target, procs_per_node=32))["processes"] == 32
