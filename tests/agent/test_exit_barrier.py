"""The torchrun of an elastic world that has ended with 0: whether all nodes of its last round have.

The texts are those of torch 2.15; tests/local/test_elastic_endings.py runs torchrun itself.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.pods import Ended, Pod

FAILED = "E1125 03:49 1 torch/distributed/elastic/agent/server/api.py:1007] Error waiting on exit barrier. Elapsed: 5 s"
TRACE = "    store.wait([last_member_key])  # barrier_timeout=self._exit_barrier_timeout"
TIMEOUT = "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /torch.rendezvous.x.0/last_member"
OLD_TIMEOUT = "RuntimeError: Socket Timeout"
LOST = "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed."


def ended(pod: Pod, lines: list[str], node: int, code: int = 0, **config: Any) -> Ended:
    """Runs a launcher that starts one rank, prints some lines and ends."""
    text = "\n".join(lines)
    program = ["/bin/sh", "-c", f'"$@"; cat >&2 <<"END"\n{text}\nEND\nexit {code}', "sh"]
    env = {"RANK": "0", "LOCAL_RANK": "0", "STEPSET_NODE_RANK": str(node)}
    launched = {"launcher": program, "program": ["true"], "command_len": 1, "launcher_restarts": True}
    return pod.run("torchrun", env=env, **{**launched, **config})


@pytest.mark.parametrize(
    ("node", "error", "code"),
    [
        (0, TIMEOUT, 71),  # another node did not end in time
        (0, OLD_TIMEOUT, 71),
        (0, LOST, 71),
        (1, LOST, 71),  # the store is on node 0
        (1, TIMEOUT, 0),  # node 0 may be slower, and decides
        (1, OLD_TIMEOUT, 0),
    ],
)
def test_a_failed_exit_barrier_is_a_failure_where_it_is_a_proof(pod: Pod, node: int, error: str, code: int) -> None:
    end = ended(pod, [FAILED, TRACE, error], node)
    assert end.exit_code == code
    if code:
        assert (end.verdict["kind"], end.verdict["exit_code"]) == ("Rendezvous", 71)
        assert end.verdict["error"].startswith("not every node of torchrun's last round has ended with 0; ")
        assert end.event("failed")["error"] == end.verdict["error"]
    else:
        assert end.log == b""


def test_a_pod_whose_exit_barrier_failed_has_no_result(pod: Pod) -> None:
    result = pod.directory / "result"
    result.write_text("1")
    end = ended(pod, [FAILED, LOST], 0, program=["sh", "-c", f"echo 1 > {pod.dir}/result"])
    assert end.exit_code == 71
    assert end.events("result") == []


def test_a_passed_exit_barrier_is_a_success(pod: Pod) -> None:
    assert ended(pod, ["W1125 03:49:36.56 1 wait timeout of another kind"], 0).exit_code == 0


def test_the_failure_of_torchrun_itself_remains_its_own(pod: Pod) -> None:
    end = ended(pod, [FAILED, TIMEOUT, "RendezvousConnectionError: no store"], 0, code=1)
    assert (end.exit_code, end.verdict["error"]) == (1, "RendezvousConnectionError: no store")


def test_the_exit_barrier_of_a_fixed_world_is_not_checked(pod: Pod) -> None:
    """Each of its pods must succeed."""
    assert ended(pod, [FAILED, LOST], 0, launcher_restarts=False).exit_code == 0


@pytest.mark.parametrize(
    ("level", "elastic", "shown"),
    [("CRITICAL", True, "ERROR"), ("FATAL", True, "ERROR"), ("INFO", True, "INFO"), ("CRITICAL", False, "CRITICAL")],
)
def test_a_log_level_does_not_hide_the_barriers_error(pod: Pod, level: str, elastic: bool, shown: str) -> None:
    end = pod.run("/bin/sh", "-c", "echo level $LOGLEVEL", env={"LOGLEVEL": level}, launcher_restarts=elastic)
    assert b"level %s\n" % shown.encode() in end.out
