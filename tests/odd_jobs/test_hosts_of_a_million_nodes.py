"""An MPI job with more nodes than a host file may name."""

from __future__ import annotations

import time

import pytest

from stepset.errors import BadInputError
from tests.frameworks.cases import FORMS
from tests.odd_jobs import OddJob, everywhere
from tests.targets.making import request

ODD_JOB = OddJob(
    job={"framework": "mpi", "num_nodes": 1_000_000},
    expected="The job is refused at once; before, the lines of the host file were created first, which took 12 s.",
    source="kubernetes v1.36 pkg/apis/core/validation/validation.go, ValidateConfigMap: MaxSecretSize, 1 MiB",
    refused=everywhere("num_nodes: 1000000 nodes need a host file of more than 1 MiB, which a ConfigMap cannot hold"),
)


@pytest.mark.machine
@pytest.mark.parametrize("framework", [form.framework for form in FORMS if form.lists_hosts])
def test_it_is_refused_before_the_hosts_are_listed(framework: object) -> None:
    started = time.process_time()
    with pytest.raises(BadInputError, match="need a host file of more than 1 MiB"):
        request(framework=framework, num_nodes=1_000_000)
    assert time.process_time() - started < 0.5
