"""A step told to end while it makes its run: none stays behind that goes on."""

import json

import pytest

from tests.kfp.steps import EMISSARY, WAITS, Steps

pytestmark = pytest.mark.cluster

MOMENTS = [20, 5, 1, 0]
"""Milliseconds from when the server first shows the run."""
# In place of KFP's launcher: the same step again and again, each time told to end when the server has its run and it
# may not know yet, or has not made all of it. It has argoexec's second. The last run is left as it is.
LAUNCHER = """\
import json, os, signal, subprocess, sys, threading, time
from stepset.backends.kubernetes.api.connection import connect
from stepset.backends.kubernetes.api.resources import WORKLOADS
from stepset.backends.kubernetes.backend import KubernetesBackend

connection = connect()
backend = KubernetesBackend(connection)

def runs():
    return connection.get(WORKLOADS["jobset"].path(connection.namespace)).body["items"]

def end_all_of(group):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) == group:
                os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass

for moment in {moments}:
    for each in runs():
        backend.end(dict(each, apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet"))
    while runs():
        time.sleep(0.1)
    child = subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=subprocess.PIPE, text=True)
    while not runs():
        time.sleep(0.001)
    time.sleep(moment / 1000)
    os.killpg(child.pid, signal.SIGTERM)
    last = threading.Timer(1.0, end_all_of, [child.pid])
    last.start()
    said = child.stdout.read().splitlines()
    child.wait()
    last.cancel()
    knew = any("stepset: JobSet" in line for line in said)
    suspended = [each["spec"].get("suspend", False) for each in runs()]
    print(json.dumps(dict(moment=moment, knew=knew, suspended=suspended, last=said[-1])), flush=True)
"""


# Tells its step to end as soon as that can hear it, when it has a handler and has asked for nothing yet; it has
# argoexec's second.
AT_ONCE = """\
import os, signal, subprocess, sys, time

child = subprocess.Popen(sys.argv[1:], start_new_session=True)

def hears(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            caught = next(line.split()[1] for line in status if line.startswith("SigCgt"))
        return os.getpgid(int(pid)) == child.pid and int(caught, 16) >> (signal.SIGTERM - 1) & 1
    except (OSError, StopIteration):
        return False

while child.poll() is None and not any(hears(pid) for pid in os.listdir("/proc") if pid.isdigit()):
    time.sleep(0.001)
os.killpg(child.pid, signal.SIGTERM)
time.sleep(1.0)
sys.exit(143)
"""


def test_a_run_of_an_earlier_try_does_not_go_on_when_the_next_is_told_to_end_before_it_has_looked(
    steps: Steps,
) -> None:
    home = steps.shared / "checkpoints"
    first = steps.start(WAITS, checkpoint_dir=str(home), on_interrupt="leave")
    steps.wait_for_line(first, "begins from nothing")
    steps.cluster.kubectl("delete", "pod", first, "-n", steps.namespace, "--grace-period=0", "--force")
    assert not steps.jobsets()[0]["spec"].get("suspend"), "it goes on"
    steps.launcher = AT_ONCE
    second = steps.start(WAITS, checkpoint_dir=str(home), node="digits-x7k2p.root.train.executor(1)")
    steps.wait(second)
    assert "is suspended" in steps.log(second)
    assert "going on with it" not in steps.log(second), "it had not come to that"
    (jobset,) = steps.jobsets()
    assert jobset["spec"]["suspend"] is True, steps.log(second)


def test_a_run_that_a_step_is_about_to_make_does_not_go_on_without_it_and_the_next_try_completes_it(
    steps: Steps,
) -> None:
    home = steps.shared / "checkpoints"
    home.mkdir()
    (home / "go").touch()
    steps.launcher = LAUNCHER.replace("{moments}", str(MOMENTS))
    pod = steps.start(WAITS, checkpoint_dir=str(home))
    assert steps.wait(pod) == 0, steps.log(pod)
    turns = [json.loads(line) for line in steps.log(pod).splitlines() if line.startswith('{"moment"')]
    assert [each["moment"] for each in turns] == MOMENTS
    assert all(each["suspended"] == [True] for each in turns), turns
    assert not turns[-1]["knew"], "it did not know its run yet"

    steps.launcher = EMISSARY
    second = steps.start(WAITS, checkpoint_dir=str(home), node="digits-x7k2p.root.train.executor(1)")
    assert steps.wait(second) == 0, steps.log(second)
    assert json.loads((steps.out(second) / "result").read_text())["accuracy"] == 0.5
