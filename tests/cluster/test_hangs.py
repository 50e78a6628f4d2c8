"""A rank that blocks the others in pods: the reported hang, and `stepset stacks`."""

from __future__ import annotations

import json

import pytest

from stepset.hang import HangKind
from stepset.run_status import Phase
from stepset.targets.rbac import Account, rbac
from tests.cluster.runs import ACCOUNT, Runs
from tests.cluster.stage import Stage

pytestmark = pytest.mark.cluster

# Rank 1 sleeps, and rank 0 waits for a connection.
PROGRAM = """
import json, socket, time

def load():
    time.sleep(100_000)

def reduce():
    socket.create_server(('', 4711)).accept()

print(json.dumps({'stepset': {'step': 118}}), flush=True)
load() if rank == 1 else reduce()
"""


def test_the_hang_names_the_place_of_each_rank_and_stacks_shows_them(runs: Runs, stage: Stage) -> None:
    for each in rbac("cli", exec=True, namespace=runs.namespace, accounts=[Account(ACCOUNT)]):
        runs.cluster.objects.create(each, runs.namespace, exist_ok=True)
    handle, listener = runs.start(**stage.job(PROGRAM, hang={"after": "3s", "first": "10m"}))
    listener.wait_until(lambda: any(status.hang for status in listener.statuses), "the hang")
    hang = next(status.hang for status in reversed(listener.statuses) if status.hang)
    assert hang.kind is HangKind.BLOCKED
    places = {rank: group.frame.function for group in hang.groups for rank in group.ranks if group.frame}
    assert places == {0: "reduce", 1: "load"}

    shown = runs.cli("stacks", handle.name, "-o", "json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["problems"] == []
    functions = {
        rank["rank"]: [frame["function"] for frame in rank["processes"][0]["threads"][0]["frames"]]
        for rank in found["ranks"]
    }
    assert "reduce" in functions[0]
    assert "load" in functions[1]

    handle.cancel()
    assert handle.wait().phase is Phase.FAILED
