"""What happens in a scenario, one step after the other. Each function returns a step, which acts on a play."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.cluster.testbed import outages
from tests.contract.interfaces import wait_for_process
from tests.waiting import until

if TYPE_CHECKING:
    from tests.contract.play import Play

Step = Callable[["Play"], None]
COMES_UP = 240.0
GOES_ON = 90.0


def lines(more: int, seconds: float = GOES_ON) -> Step:
    """Waits until the interface has shown so many more lines of each rank."""

    def step(play: Play) -> None:
        wanted = play.counted() + more
        play.view.wait(lambda: play.counted() >= wanted, f"{more} more lines of each rank", seconds)

    return step


def fault(do: str, **fields: Any) -> Step:
    """Begins a fault; see `proxy.rules.Rule`."""

    def step(play: Play) -> None:
        play.seen = play.gate.seen()
        play.gate.fault(do, do, **fields)

    return step


def mend(do: str) -> Step:
    """Ends a fault."""
    return lambda play: play.gate.mend(do)


def drop(*on: str) -> Step:
    """Aborts open connections of some kinds; default: all."""
    return lambda play: play.gate.drop(*on)


def pause(seconds: float) -> Step:
    """Lets time pass: the fault's, or one in which nothing may be reported."""
    return lambda _: time.sleep(seconds)


def say(word: str) -> Step:
    """Lets ranks that wait for a word go on."""
    return lambda play: play.stage.say(word)


def told(text: str, seconds: float = GOES_ON) -> Step:
    """Waits until the interface tells the user something."""

    def step(play: Play) -> None:
        play.view.wait(lambda: any(text in each for each in play.view.said), f"{text!r}", seconds)

    return step


def requested(kind: str, count: int, seconds: float = GOES_ON) -> Step:
    """Waits until the gate has received so many more requests of a kind since the last fault began."""

    def step(play: Play) -> None:
        before = play.seen.get(kind, 0)
        done = until(lambda: play.gate.seen().get(kind, 0) >= before + count, seconds)
        assert done, f"waited {seconds:.0f} s for {count} more requests: {kind}\n{play.view.shown()}"

    return step


def renew_credentials(play: Play) -> None:
    """Replaces the files that the kubeconfig names; the old credentials are refused, and connections are closed."""
    play.gate.renew()


def delete_run(play: Play) -> None:
    """Another user deletes the run."""
    what = f"{'statefulset' if play.runs.target == 'statefulset' else 'jobset'}/{play.jobset()}"
    play.cluster.kubectl("delete", what, "-n", play.runs.namespace, "--cascade=foreground", "--timeout=90s")


def suspend_run(play: Play) -> None:
    """Another user suspends the run."""
    _patch(play, suspend=True)
    wait_for_process(lambda: not play.runs.pods(), "the end of the run's pods")


def resume_run(play: Play) -> None:
    """Another user resumes the run."""
    _patch(play, suspend=False)


def run_ended(play: Play) -> None:
    """Waits until the run has ended on the cluster."""

    def ended() -> bool:
        status = play.runs.get(f"jobset/{play.jobset()}").get("status") or {}
        return any(each["type"] == "Completed" for each in status.get("conditions") or ())

    wait_for_process(ended, "the end of the run on the cluster")


def run_goes_on(play: Play) -> None:
    """Fails if the run was ended or suspended."""
    play.gate.mend("refuse")
    before = len(play.runs.pods())
    workload = play.runs.get(f"jobset/{play.jobset()}")
    assert "deletionTimestamp" not in workload["metadata"], "the run was deleted"
    assert not workload["spec"].get("suspend"), "the run was suspended"
    assert before == play.ranks, f"{before} pods"


def stop_server(play: Play) -> None:
    """The API server is killed, for all plays of this scenario at once."""
    play.group.once("server stops", lambda: outages.stop(outages.API_SERVER, signal.SIGKILL))


def start_server(play: Play) -> None:
    """The API server is started again."""
    choice = play.cluster.choice
    assert choice is not None
    play.group.once("server starts", lambda: outages.start(choice, outages.API_SERVER))


def _patch(play: Play, *, suspend: bool) -> None:
    patch = json.dumps({"spec": {"suspend": suspend}})
    words = ("patch", f"jobset/{play.jobset()}", "-n", play.runs.namespace, "--type=merge", "-p", patch)
    play.cluster.kubectl(*words)
