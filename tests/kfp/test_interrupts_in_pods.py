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
from stepset.backends.kubernetes.client import connect
from stepset.backends.kubernetes.site import WORKLOADS, Site
from stepset.backends.kubernetes.stop import delete

connection = connect()
site = Site(connection, connection.namespace)

def runs():
    return connection.get(site.all(WORKLOADS["jobset"])).body["items"]

def end_all_of(group):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) == group:
                os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass

for moment in {moments}:
    for each in runs():
        delete(site, dict(each, apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet"))
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
