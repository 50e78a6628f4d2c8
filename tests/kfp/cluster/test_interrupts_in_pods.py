"""A step that is terminated while it creates its run leaves no run that continues."""

import json

import pytest

from tests.kfp.node_names import step_node
from tests.kfp.steps import LONGEST, WAITS, Steps, emissary

pytestmark = pytest.mark.cluster

MOMENTS = [20, 5, 1, 0]
"""Milliseconds between the appearance of the run on the server and SIGTERM."""
ATTEMPTS = 5
"""How often a moment is tried, on a busy machine that misses it, or whose API server does not answer in time."""
# Replaces KFP's launcher: starts the same step once for each moment, and terminates it when the server has its run, but
# the step may have no response yet or may not have created all objects. It kills the step when argoexec does so latest.
# The last run is not deleted.
LAUNCHER = """\
import json, os, signal, subprocess, sys, threading, time
from stepset.backends.kubernetes.api.portal import connect
from stepset.backends.kubernetes.api.replies import UnreachableError
from stepset.backends.kubernetes.api.resources import WORKLOADS
from stepset.backends.kubernetes.backend import KubernetesBackend

connection = connect()
backend = KubernetesBackend(connection)

def runs():
    while True:
        try:
            return connection.get(WORKLOADS["jobset"].path(connection.namespace)).body["items"]
        except UnreachableError as error:  # the API server of a busy machine may not answer in time
            print(error, flush=True)

def end_all_of(group):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) == group:
                os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass

def terminate_at(moment):
    for each in runs():
        backend.end(dict(each, apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet"))
    while runs():
        time.sleep(0.1)
    child = subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=subprocess.PIPE, text=True)
    while not runs():
        time.sleep(0.001)
    time.sleep(moment / 1000)
    os.killpg(child.pid, signal.SIGTERM)
    last = threading.Timer({longest}, end_all_of, [child.pid])
    last.start()
    lines = child.stdout.read().splitlines()
    child.wait()
    last.cancel()
    known = any("stepset: JobSet" in line for line in lines)
    suspended = [each["spec"].get("suspend", False) for each in runs()]
    print(json.dumps(dict(moment=moment, known=known, suspended=suspended, last=lines[-1])), flush=True)
    answered = suspended == [True] or "no response" not in lines[-1]
    return answered and not (known and moment == 0)  # on a busy machine SIGTERM may arrive after the response

with connection:  # one TLS handshake for all reads
    for moment in {moments}:
        any(terminate_at(moment) for _ in range({attempts}))
"""


# Sends SIGTERM to its step as soon as the step has a handler, before it has sent a request; ends when argoexec does so
# latest.
AT_ONCE = """\
import os, signal, subprocess, sys, time

child = subprocess.Popen(sys.argv[1:], start_new_session=True)

def has_handler(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            caught = next(line.split()[1] for line in status if line.startswith("SigCgt"))
        return os.getpgid(int(pid)) == child.pid and int(caught, 16) >> (signal.SIGTERM - 1) & 1
    except (OSError, StopIteration):
        return False

while child.poll() is None and not any(has_handler(pid) for pid in os.listdir("/proc") if pid.isdigit()):
    time.sleep(0.001)
os.killpg(child.pid, signal.SIGTERM)
time.sleep({longest})
sys.exit(143)
"""


def test_the_run_of_an_earlier_try_is_suspended_if_the_next_try_is_terminated_before_finding_it(
    steps: Steps,
) -> None:
    home = steps.shared / "checkpoints"
    first = steps.start(WAITS, checkpoint_dir=str(home), on_interrupt="leave")
    steps.wait_for_line(first, "begins from nothing")
    steps.cluster.kubectl("delete", "pod", first, "-n", steps.namespace, "--grace-period=0", "--force")
    assert not steps.jobsets()[0]["spec"].get("suspend"), "it continues"
    steps.launcher = AT_ONCE.replace("{longest}", str(LONGEST))
    for number in range(1, ATTEMPTS + 1):
        step = steps.start(WAITS, checkpoint_dir=str(home), node=step_node(try_number=number))
        steps.wait(step)
        assert "reattaching to it" not in steps.log(step), "the step had not found the run"
        if "is suspended" in steps.log(step):
            break  # on a busy machine, argoexec kills the step before the server answers; then Argo's next try follows
    (jobset,) = steps.jobsets()
    assert jobset["spec"].get("suspend") is True, steps.log(step)


def test_a_run_is_suspended_if_its_step_is_terminated_during_creation_and_the_next_try_completes_it(
    steps: Steps,
) -> None:
    home = steps.shared / "checkpoints"
    home.mkdir()
    (home / "go").touch()
    steps.launcher = LAUNCHER.replace("{moments}", str(MOMENTS)).replace("{attempts}", str(ATTEMPTS))
    steps.launcher = steps.launcher.replace("{longest}", str(LONGEST))
    pod = steps.start(WAITS, checkpoint_dir=str(home))
    assert steps.wait(pod) == 0, steps.log(pod)
    tries = [json.loads(line) for line in steps.log(pod).splitlines() if line.startswith('{"moment"')]
    results = {each["moment"]: each for each in tries}
    assert list(results) == MOMENTS
    assert all(each["suspended"] == [True] for each in results.values()), tries
    assert not results[MOMENTS[-1]]["known"], "the step had no response yet"

    steps.launcher = emissary()
    second = steps.start(WAITS, checkpoint_dir=str(home), node=step_node(try_number=1))
    assert steps.wait(second) == 0, steps.log(second)
    assert json.loads((steps.out(second) / "result").read_text())["accuracy"] == 0.5
