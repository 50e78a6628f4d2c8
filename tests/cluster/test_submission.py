"""The objects on the server while a run is submitted."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from pathlib import Path

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import connect
from stepset.backends.kubernetes.submit.refusals import misses_runtime
from stepset.backends.kubernetes.submit.submission import create_after_runtime
from stepset.targets.metadata import SUBMISSION
from tests.cluster.runs import Runs
from tests.targets.making import rendered

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(("agent", "needs_more"), [(False, False), (True, True)])
def test_a_run_is_marked_as_half_submitted_only_until_its_last_object_is_created(
    runs: Runs, agent: bool, needs_more: bool
) -> None:
    command = ["sh", "-c", "sleep 1"]
    made, _ = runs.backend().make(runs.request(command=command, agent=agent))
    # `workload` is the server's answer to the first request.
    assert (SUBMISSION in made.workload["metadata"]["labels"]) is needs_more
    assert SUBMISSION not in runs.get("jobset/run")["metadata"]["labels"]


@pytest.mark.parametrize("runs", ["trainjob"], indirect=True)
def test_a_trainjob_is_created_as_soon_as_the_webhooks_have_its_runtime(runs: Runs) -> None:
    *_, runtime, trainjob = rendered("trainjob", name="run", image=runs.cluster.image)
    with connect(str(runs.kubeconfig)) as connection, ThreadPoolExecutor() as pool:
        namespaced = NamespacedClient(connection.client, runs.namespace)
        refused = connection.call(create_after_runtime, namespaced, trainjob, 0.0)
        assert misses_runtime(refused, trainjob), refused.body
        waiting = pool.submit(connection.call, create_after_runtime, namespaced, trainjob)
        with pytest.raises(NotYetError):
            waiting.result(1)
        assert connection.call(namespaced.create, runtime).accepted
        made = waiting.result(60)
        assert made.accepted, made.body
    assert runs.get("trainjob/run")["metadata"]["uid"] == made.body["metadata"]["uid"]


def test_a_repeated_submission_keeps_the_keys_with_which_pods_run(runs: Runs) -> None:
    """The first process was killed between its last object and the removal of the label; this one may not read keys."""
    backend, request = runs.backend(), runs.request("pass", framework="mpi", num_nodes=2, owner="me")
    backend.make(request)
    before = runs.get("secrets")["items"]
    runs.cluster.kubectl("label", "jobset", "run", "-n", runs.namespace, f"{SUBMISSION}=started")
    made, _ = backend.make(request)
    assert made.adopted
    assert [each["metadata"]["uid"] for each in runs.get("secrets")["items"]] == [before[0]["metadata"]["uid"]]
    assert SUBMISSION not in runs.get("jobset/run")["metadata"]["labels"]


def test_a_run_in_the_background_notes_that_standard_input_does_not_reach_the_ranks(runs: Runs) -> None:
    job = runs.job_file("pass", framework="mpi", num_nodes=1)
    (runs.directory / "data").write_text("line 0\n")
    note = (
        "note: standard input does not reach the ranks on a cluster; put the data into the job's code directory, or on"
        " a volume"
    )
    with (runs.directory / "data").open() as data, Path(os.devnull).open() as nothing:
        noted = runs.cli("run", job, "--detach", stdin=data)
        unnoted = runs.cli("run", job, "--set=name=other", "--detach", stdin=nothing)
    assert (noted.returncode, unnoted.returncode) == (0, 0), noted.stderr + unnoted.stderr
    assert note in noted.stderr
    assert note not in unnoted.stderr


def test_a_run_notes_how_many_files_of_its_code_are_ignored_and_its_pods_get_only_the_others(runs: Runs) -> None:
    code = runs.directory / "code"
    code.mkdir()
    for name, text in {".gitignore": ".env\n", ".env": "TOKEN=1", "train.py": "import os; print(os.listdir())"}.items():
        (code / name).write_text(text)
    status, listener = runs.run(script="train.py", code="code")
    note = "code: 1 file is ignored because of .gitignore; `stepset explain --files` lists what is shipped"
    assert note in status.notes
    assert listener.texts("rank 0") == ["['train.py']"]
