"""A training that goes on when a test lets it, and the lines it prints.

Used by the tests of what happens meanwhile.
"""

from __future__ import annotations

from tests.airflow.stack.conftest import Stage
from tests.airflow.stack.rest import eventually

WAITS = """
import os, time
def say(word):
    for number in range(50):
        print(word, number, flush=True)
say("before")
for name in ("first", "second"):
    while not os.path.exists("/tmp/" + name):
        time.sleep(0.05)
    say(name)
open(os.environ["STEPSET_RESULT_FILE"], "w").write("7")
"""
"""Says 50 lines before it waits for `first`, then as many of `first`, and of `second`; its result is 7."""

TALKS = """
import os, time
number = 0
while not os.path.exists("/tmp/over"):
    print("line", number, flush=True)
    number += 1
    time.sleep(0.02)
print("line", number, "is the last", flush=True)
open(os.environ["STEPSET_RESULT_FILE"], "w").write("7")
"""
"""Says a line after the other, fifty a second, until it is `over`; its result is 7."""


def training(stage: Stage, **parameters: object) -> str:
    """Text of a task whose run is deleted when it is over, and whose end is an event of an asset."""
    text = stage.train(**{"on_finish_action": "delete", "outlets": [], **parameters})
    return text.replace("outlets=[]", f"outlets=[Asset({stage.name!r})]")


def lines(*words: str) -> list[str]:
    """What the task log shows of what it says."""
    return [f"[rank 0] {word} {number}" for word in words for number in range(50)]


def lines_of_ranks(log: list[str]) -> list[str]:
    """What trainings said, of a task's log."""
    return [line for line in log if line.startswith("[rank")]


def let(stage: Stage, *names: str, run: str = "", pods: int = 1) -> None:
    """Lets a training of so many pods go on, by default the only one that runs."""
    runs = stage.tasks.runs

    def running() -> list[str]:
        return [
            str(pod["metadata"]["name"])
            for pod in runs.pods()
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
            if run in ("", pod["metadata"]["labels"]["stepset.dev/run"])
        ]

    assert eventually(lambda: len(running()) == pods), running()
    files = [f"/tmp/{name}" for name in names]
    for pod in running():
        runs.cluster.kubectl("exec", pod, "-n", runs.namespace, "--", "touch", *files)
