"""A step has one training, however often its pods are deleted or evicted, and whichever level Argo retries."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kfp_server_api
import pytest

from stepset.targets.metadata import OWNER_HASH
from tests.cluster.testbed.layout import TestbedError
from tests.kfp_backend.backend import RUN_OF_POD, RUN_OF_TRAINING, Backend, Object, is_live, node_name
from tests.kfp_backend.pipelines import TRAIN, Shape, shapes
from tests.violations import ViolationError, at_most

pytestmark = pytest.mark.cluster

DISRUPTIONS = int(os.environ.get("STEPSET_KFP_DISRUPTIONS", "100"))
"""Pods that are deleted or evicted, in all pipelines together."""
SEED = int(os.environ.get("STEPSET_KFP_SEED", "28"))
REPORT = os.environ.get("STEPSET_KFP_REPORT", "")
"""A file for the figures of docs/testing/kfp-backend.md."""
LONGEST_PAUSE = 4.0
"""Seconds between the start of a step's program and its deletion: before and while it finds its run; for every other
one, seconds between the existence of a live run and its deletion."""
PATIENCE = 60.0
"""Seconds for which the deletion of a step waits for a live run."""
TIMEOUT = 2400.0
STUCK = 60.0
"""Seconds for which Argo refuses to retry a failed Workflow before its pipeline run is given up.

Argo 4.0.5 refuses it for good if an earlier retry has left a node in the phase Running, which may happen to a Workflow
with several levels of retries.
"""


class Observed:
    """The trainings of pipeline runs, read several times a second."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.uids: dict[str, dict[str, set[str]]] = {}
        """The ids of the trainings by step, of each pipeline run."""
        self.live: Counter[str] = Counter()
        """The maximum of live trainings of a pipeline run at a time."""
        self.live_now: Counter[str] = Counter()
        self.reads = 0

    def add(self, run: str) -> None:
        """Adds a pipeline run."""
        self.uids[run] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(0.25):
            try:
                found = self._backend.trainings()
            except TestbedError:  # the API server of a busy machine did not answer in time
                continue
            self.reads += 1
            for run in tuple(self.uids):
                own = [each for each in found if each["metadata"]["labels"][RUN_OF_TRAINING] == run]
                for each in own:
                    step = each["metadata"]["labels"][OWNER_HASH]
                    self.uids[run].setdefault(step, set()).add(each["metadata"]["uid"])
                self.live_now[run] = sum(map(is_live, own))
                self.live[run] = max(self.live[run], self.live_now[run])


class Disruptor:
    """Deletes and evicts the pods of a pipeline's steps, and retries its run when Argo's retries are used up."""

    def __init__(self, backend: Backend, name: str, shape: Shape, goal: int, seed: int, observed: Observed) -> None:
        self.backend, self.name, self.shape, self.goal, self.observed = backend, name, shape, goal, observed
        self.random = random.Random(seed)
        self.runs: list[str] = []
        """The pipeline runs: the first one, and one for each that Argo refused to retry."""
        self._refused: float | None = None
        self.done: list[tuple[str, str]] = []
        """What was done, and the name of the pod's node."""
        self.retries = 0
        """How often the pipeline run was retried, as by a user."""
        self._late: dict[str, bool] = {}
        self._since: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._disrupted: set[str] = set()

    @property
    def run(self) -> str:
        """The current pipeline run."""
        return self.runs[-1]

    def submit(self) -> None:
        """Submits the pipeline."""
        self.runs.append(self.backend.submit(self.shape.pipeline))
        self.observed.add(self.run)
        self._refused = None

    def look(self) -> None:
        """Retries the pipeline run if it has failed, or submits the pipeline again, as a user would."""
        if self.backend.state(self.run) != "FAILED":
            return
        try:
            self.backend.retry(self.run)
        except kfp_server_api.ApiException:  # Argo has not ended all of its nodes
            self._refused = self._refused or time.monotonic()
            if time.monotonic() > self._refused + STUCK:
                print(f"{self.name}: Argo does not retry run {self.run}", flush=True)
                self.submit()
            return
        self._refused = None
        self.retries += 1
        print(f"{self.name}: retry {self.retries} by a user", flush=True)

    def end(self) -> str:
        """Waits until the pipeline run is over, and retries it if its last disruption was one too many."""
        while (state := self.backend.wait(self.run)) == "FAILED" and self.retries < self.goal:
            self.look()
            time.sleep(5)
        return state

    @property
    def is_over(self) -> bool:
        """Whether it has done as much as it should."""
        return len(self.done) >= self.goal

    def act(self, pods: list[Object]) -> None:
        """Disrupts each step whose program has run for a random time."""
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if pod["metadata"]["labels"][RUN_OF_POD] != self.run or uid in self._disrupted or not _is_started(pod):
                continue
            if self.is_over:
                return
            if self._is_due(uid):
                self._disrupt(pod)

    def _is_due(self, uid: str) -> bool:
        now = time.monotonic()
        late = self._late.setdefault(uid, self.random.random() < 0.5)
        since = self._since.setdefault(uid, now)
        if uid not in self._due and (not late or self.observed.live_now[self.run] or now > since + PATIENCE):
            self._due[uid] = now + self.random.uniform(0, LONGEST_PAUSE)
        return uid in self._due and now >= self._due[uid]

    def _disrupt(self, pod: Object) -> None:
        kind = self.random.choice(sorted(KINDS))
        self._disrupted.add(pod["metadata"]["uid"])
        if KINDS[kind](self.backend, pod):
            self.done.append((kind, node_name(pod)))
            print(f"{self.name}: {len(self.done)}: {kind}: {node_name(pod)}", flush=True)


KINDS: dict[str, Callable[[Backend, Object], bool]] = {
    "forced deletion": lambda backend, pod: backend.delete_pod(pod, grace=0),
    "deletion": lambda backend, pod: backend.delete_pod(pod),
    "eviction": lambda backend, pod: backend.evict_pod(pod),
}


def _is_started(pod: Object) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    return any("running" in each["state"] for each in pod["status"].get("containerStatuses") or ())


def test_deletions_and_evictions_never_lead_to_a_second_training_of_a_step(backend: Backend) -> None:
    (backend.shared / "train.py").write_text(TRAIN)
    home = backend.shared / "home"
    made = shapes(home, backend.settings())
    goal = -(-DISRUPTIONS // len(made))
    observed = Observed(backend)
    disruptors = [
        Disruptor(backend, name, shape, goal, SEED + at, observed) for at, (name, shape) in enumerate(made.items())
    ]
    for each in disruptors:
        each.submit()
    until = time.monotonic() + TIMEOUT
    with observed.watching():
        looked = time.monotonic()
        while not all(each.is_over for each in disruptors):
            assert time.monotonic() < until, {each.name: each.done for each in disruptors}
            pods = backend.steps()
            for each in disruptors:
                each.act(pods)
            if time.monotonic() > looked + 10:
                looked = time.monotonic()
                for each in disruptors:
                    each.look()
            time.sleep(0.5)
        for name in made:
            (home / name).mkdir(parents=True, exist_ok=True)
            (home / name / "go").touch()
        ends = {each.name: each.end() for each in disruptors}
    report(disruptors, observed, home)
    for each in disruptors:
        # In the exit handler, cleanup_training deletes the run of a failed pipeline, so that its retry needs a new one.
        allowed = 1 + (each.retries if each.name == "exit-handler" else 0)
        for run in each.runs:
            steps = observed.uids[run]
            assert len(steps) == each.shape.trainings, f"{each.name}: a step has had two identities"
            for uids in steps.values():
                at_most(allowed, uids)
            if observed.live[run] > each.shape.trainings:
                raise ViolationError(f"{each.name}: two live runs of a step")
        assert not any(observed.live_now[run] for run in each.runs), f"{each.name}: a training outlives its pipeline"
    assert sum(len(each.done) for each in disruptors) >= DISRUPTIONS
    assert ends == dict.fromkeys(made, "SUCCEEDED")


def report(disruptors: list[Disruptor], observed: Observed, home: Path) -> None:
    """Prints the figures, and writes them to the file that STEPSET_KFP_REPORT names."""
    figures = {
        each.name: {
            "disruptions": dict(Counter(kind for kind, _ in each.done)),
            "nodes": len({name for _, name in each.done}),
            "pipeline runs": len(each.runs),
            "steps": each.shape.trainings,
            "retries by a user": each.retries,
            "trainings of each step": [len(uids) for run in each.runs for uids in observed.uids[run].values()],
            "live at most": max(observed.live[run] for run in each.runs),
            "starts": [json.loads(file.read_text()) for file in sorted((home / each.name).glob("*-starts/*"))],
            "node names": [name for _, name in each.done],
        }
        for each in disruptors
    }
    text = json.dumps({"reads": observed.reads, "pipelines": figures}, indent=1)
    print(text)
    if REPORT:
        Path(REPORT).write_text(text)
