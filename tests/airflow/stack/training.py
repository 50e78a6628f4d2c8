"""Trainings that wait for signals of a test, and the lines that they print."""

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
"""Prints 50 lines before it waits for the signal `first`, then 50 each after `first` and `second`; its result is 7."""

COUNTS = """
import os, time
number = 0
while not os.path.exists("/tmp/over"):
    print("line", number, flush=True)
    number += 1
    time.sleep(0.02)
print("line", number, "is the last", flush=True)
open(os.environ["STEPSET_RESULT_FILE"], "w").write("7")
"""
"""Prints fifty numbered lines a second until the signal `over`; its result is 7."""


def training(stage: Stage, **parameters: object) -> str:
    """Source text of a task whose run is deleted at its end and whose success creates an asset event."""
    text = stage.train(**{"on_finish_action": "delete", "outlets": [], **parameters})
    return text.replace("outlets=[]", f"outlets=[Asset({stage.name!r})]")


def lines(*words: str) -> list[str]:
    """The lines of WAITS for these words, as the task log shows them."""
    return [f"[rank 0] {word} {number}" for word in words for number in range(50)]


def lines_of_ranks(log: list[str]) -> list[str]:
    """The lines of ranks in a task's log."""
    return [line for line in log if line.startswith("[rank")]


def signal(stage: Stage, *names: str, run: str = "", pods: int = 1) -> None:
    """Sends signals to a training that has this number of pods, by default to the only training that runs."""
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
