"""The steps of scenarios. A step is a function of a play; functions with arguments return one."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.cluster.forged import filled, forged_pods, unreadable_jobsets
from tests.cluster.testbed import outages
from tests.contract.interfaces import wait_for_process
from tests.waiting import until

if TYPE_CHECKING:
    from tests.contract.play import Play

Step = Callable[["Play"], None]
STARTUP_TIME = 240.0
"""Seconds within which a run's ranks print, on a machine that starts many other runs."""
RECOVERY_TIME = 300.0
"""Seconds within which an interface continues after a fault, on a machine that runs other tests."""


def lines(more: int, seconds: float = RECOVERY_TIME) -> Step:
    """Waits until the interface has shown `more` further lines of each rank."""

    def step(play: Play) -> None:
        wanted = play.counted() + more
        play.view.wait(lambda: play.counted() >= wanted, f"{more} more lines of each rank", seconds)

    return step


def fault(do: str, **fields: Any) -> Step:
    """Starts a fault; see `proxy.rules.Rule`."""

    def step(play: Play) -> None:
        play.seen = play.gate.seen()
        play.gate.fault(do, do, **fields)

    return step


def clear(do: str) -> Step:
    """Ends a fault."""
    return lambda play: play.gate.clear(do)


def drop(*on: str) -> Step:
    """Aborts open connections of some kinds; default: all."""
    return lambda play: play.gate.drop(*on)


def pause(seconds: float) -> Step:
    """Waits: for the duration of a fault, or a time in which nothing must be reported."""
    return lambda _: time.sleep(seconds)


def say(word: str) -> Step:
    """Signals a word: ranks that wait for it continue."""
    return lambda play: play.stage.say(word)


def reported(pattern: str, seconds: float = RECOVERY_TIME) -> Step:
    """Waits until the interface shows a message that matches `pattern`."""

    def step(play: Play) -> None:
        play.view.wait(lambda: any(re.search(pattern, each) for each in play.view.messages), f"{pattern!r}", seconds)

    return step


def requested(kind: str, count: int, seconds: float = RECOVERY_TIME) -> Step:
    """Waits until the gate has received `count` requests of a kind since the start of the last fault.

    Args:
        kind: the kind of request, or a kind and a resource, such as "list pods".
        count: the number of requests.
        seconds: the longest wait.
    """

    def step(play: Play) -> None:
        before = play.seen.get(kind, 0)
        done = until(lambda: play.gate.seen().get(kind, 0) >= before + count, seconds)
        assert done, f"waited {seconds:.0f} s for {count} more requests: {kind}\n{play.view.shown()}"

    return step


def forge_objects(play: Play) -> None:
    """Creates pods that claim to belong to the run, and workloads that cannot be read; waits until the pods end."""
    runs, objects = play.runs, play.cluster.objects
    for each in (*forged_pods(runs, runs.pods()[0]), *unreadable_jobsets(runs)):
        objects.create(each, runs.namespace)

    def ended() -> bool:
        pods = [each for each in runs.get("pods")["items"] if each["metadata"]["name"].startswith("forged-")]
        return all(each["status"]["phase"] in ("Succeeded", "Failed") for each in pods)

    wait_for_process(ended, "the end of the forged pods")


def fill_namespace(count: int, size: int) -> Step:
    """Creates many pods with large annotations, as another user, once for all plays of this scenario.

    The pods never run. Each has the labels of one of the runs.
    """

    def act(play: Play) -> None:
        runs = [str(each["metadata"]["name"]) for each in play.runs.get("jobsets")["items"]]
        play.group.enter(filled(play.runs, runs, count, size))

    return lambda play: play.group.once("the namespace is filled", lambda: act(play))


def renew_credentials(play: Play) -> None:
    """Replaces the files to which the kubeconfig refers; the gate refuses the previous credentials."""
    play.gate.renew()


def delete_run(play: Play) -> None:
    """Deletes the run, as another user."""
    what = f"{'statefulset' if play.runs.target == 'statefulset' else 'jobset'}/{play.jobset()}"
    play.cluster.kubectl("delete", what, "-n", play.runs.namespace, "--cascade=foreground", "--timeout=300s")


def suspend_run(play: Play) -> None:
    """Suspends the run, as another user."""
    _patch(play, suspend=True)
    wait_for_process(lambda: not play.runs.pods(), "the end of the run's pods")


def resume_run(play: Play) -> None:
    """Resumes the run, as another user."""
    _patch(play, suspend=False)


def run_ended(play: Play) -> None:
    """Waits until the run has ended on the cluster."""

    def ended() -> bool:
        status = play.runs.get(f"jobset/{play.jobset()}").get("status") or {}
        return any(each["type"] == "Completed" for each in status.get("conditions") or ())

    wait_for_process(ended, "the end of the run on the cluster")


def run_continues(play: Play) -> None:
    """Asserts that the run was neither ended nor suspended."""
    play.gate.clear("refuse")
    before = len(play.runs.pods())
    workload = play.runs.get(f"jobset/{play.jobset()}")
    assert "deletionTimestamp" not in workload["metadata"], "the run was deleted"
    assert not workload["spec"].get("suspend"), "the run was suspended"
    assert before == play.ranks, f"{before} pods"


def stop_server(play: Play) -> None:
    """Kills the API server, once for all plays of this scenario."""
    play.group.once("server stops", lambda: outages.stop(outages.API_SERVER, signal.SIGKILL))


def start_server(play: Play) -> None:
    """Starts the API server again."""
    choice = play.cluster.choice
    assert choice is not None
    play.group.once("server starts", lambda: outages.start(choice, outages.API_SERVER))


def _patch(play: Play, *, suspend: bool) -> None:
    patch = json.dumps({"spec": {"suspend": suspend}})
    words = ("patch", f"jobset/{play.jobset()}", "-n", play.runs.namespace, "--type=merge", "-p", patch)
    play.cluster.kubectl(*words)
