"""The manifests on a real cluster: pods train, fail and start again as the targets promise.

tests/cluster/test_any_job.py checks that the API server accepts them, test_like_trainer.py what Trainer's controller
creates from them. Needs the cluster of docs/testing/cluster.md, or the one that KUBECONFIG names.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.targets.names import SSH_PRIVATE_KEY, SSH_PUBLIC_KEY
from stepset.targets.pods.strategic_merge import merge
from tests.cluster.conftest import cluster, namespace  # noqa: F401  # fixtures
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError
from tests.targets.making import Manifest, rendered

pytestmark = pytest.mark.cluster

RESULT = "import json, os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write(json.dumps({}))"


class ClusterNamespace:
    """A namespace in which jobs are rendered, applied and observed."""

    def __init__(self, where: Cluster, name: str) -> None:
        self.cluster = where
        self.name = name

    def render(self, target: str = "jobset", **job: Any) -> list[Manifest]:
        template = merge(self.cluster.pod_template(), {"spec": job.pop("pod_template", {})})
        return rendered(target, **{"name": "run", "image": self.cluster.image, "pod_template": template, **job})

    def apply(self, objects: list[Manifest], *options: str) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        words = ["apply", "--server-side", "--validate=strict", "-n", self.name, *options, "-f", "-"]
        self.cluster.kubectl(*words, text=text)

    def start(self, target: str = "jobset", **job: Any) -> None:
        *before, workload = self.render(target, **job)
        if target == "trainjob":
            # Its webhooks reject it until they have received its runtime (docs/targets.md).
            self.apply(before)
            self.wait("the webhooks' word", lambda: self._taken(workload))
        else:
            self.apply([*before, workload])

    def _taken(self, workload: Manifest) -> bool:
        try:
            self.apply([workload])
        except TestbedError as refused:
            assert "runtime 'run' not found" in str(refused) or '"run" not found' in str(refused), refused
            return False
        return True

    def get(self, what: str, selector: str = "") -> Any:
        return self.cluster.get(what, self.name, selector)

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        self.cluster.wait(what, condition)

    def ended(self) -> str:
        """Waits for the end of the JobSet; returns Completed or Failed."""
        self.wait("the JobSet's end", lambda: self._terminal_state() != "")
        return self._terminal_state()

    def _terminal_state(self) -> str:
        found = self.get("jobsets")["items"]  # behind a TrainJob it is created later
        return str(found[0].get("status", {}).get("terminalState", "")) if found else ""

    def pods(self, group: str = "node") -> list[Manifest]:
        found = self.get("pods", f"stepset.dev/run=run,stepset.dev/group={group}")["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def wait_running(self, count: int) -> None:
        def running() -> list[Manifest]:
            return [each for each in self.get("pods")["items"] if each["status"]["phase"] == "Running"]

        self.wait("running pods", lambda: len(running()) == count)

    def evict(self, pod: str) -> None:
        """Evicts a pod, as a drain or a preemption does."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.name}}
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}/eviction"
        self.cluster.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction))

    def messages(self, group: str = "node") -> list[str]:
        """Returns the termination messages of a group's pods."""
        states = [each["status"]["containerStatuses"][0] for each in self.pods(group)]
        return [
            (state["state"].get("terminated") or state["lastState"]["terminated"]).get("message", "")
            for state in states
        ]


@pytest.fixture
def runs(cluster: Cluster, namespace: str) -> ClusterNamespace:  # noqa: F811  # fixtures
    return ClusterNamespace(cluster, namespace)


class TestRuns:
    @pytest.mark.parametrize("target", ["jobset", "job", "trainjob"])
    def test_ranks_find_each_other_and_rank_0_writes_the_result(self, runs: ClusterNamespace, target: str) -> None:
        # Rank 1 is in the same pod: a result that it wrote would replace that of rank 0.
        code = (
            "import os, socket; socket.gethostbyname(os.environ['MASTER_ADDR'])\n"
            "if os.environ['RANK'] in '02': " + RESULT.format("[os.environ['RANK'], os.environ['WORLD_SIZE']]")
        )
        framework = {"kind": "torch", "launcher": "none"}
        runs.start(target, framework=framework, num_nodes=2, procs_per_node=2, function=code)
        if target == "job":
            runs.wait("the Job's end", lambda: runs.get("job/run")["status"].get("succeeded") == 2)
        else:
            assert runs.ended() == "Completed"
        assert runs.messages() == ['["0", "4"]', ""]

    def test_a_code_directory_is_unpacked_where_ranks_start_and_may_write(
        self, runs: ClusterNamespace, tmp_path: Path
    ) -> None:
        (tmp_path / "src" / "lib").mkdir(parents=True)
        (tmp_path / "src" / "lib" / "model.py").write_text("NAME = 'model'\n")
        (tmp_path / "src" / "train.py").write_text(
            "import pathlib; from lib.model import NAME; pathlib.Path('here').write_text(NAME);"
            + RESULT.format("[NAME, os.getcwd()]")
        )
        job = {"name": "run", "framework": "plain", "image": runs.cluster.image, "code": "src", "script": "train.py"}
        job["pod_template"] = runs.cluster.pod_template()
        runs.apply(stepset.render(job, base_dir=tmp_path))
        assert runs.ended() == "Completed"
        assert runs.messages() == ['["model", "/stepset/code"]']

    def test_without_the_agent_the_script_is_mounted_and_its_last_lines_are_the_message(
        self, runs: ClusterNamespace
    ) -> None:
        code = "import os; print(os.getcwd(), sorted(os.listdir('.')))"
        runs.start(framework="plain", agent=False, function=code)
        assert runs.ended() == "Completed"
        name = runs.pods()[0]["metadata"]["name"]
        assert runs.cluster.logs(name, runs.name).startswith("/stepset/code ['..")

    def test_a_role_that_comes_before_is_complete_first(self, runs: ClusterNamespace) -> None:
        role = {"name": "prepare", "before": True, "command": [runs.cluster.python, "-c", "print('ready')"]}
        runs.start(framework="plain", roles=[role], function=RESULT.format("1"))
        assert runs.ended() == "Completed"
        (before,), (node,) = runs.pods("prepare"), runs.pods()
        ended = before["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
        assert ended <= node["status"]["startTime"]

    def test_a_statefulsets_rank_that_has_finished_is_ready_and_not_trained_again(self, runs: ClusterNamespace) -> None:
        code = "import time; time.sleep(2); print('trained');" + RESULT.format("os.environ['PET_MASTER_ADDR']")
        env = {"PET_MASTER_ADDR": "$(MASTER_ADDR)"}
        framework = {"kind": "torch", "launcher": "none"}
        runs.start("statefulset", framework=framework, num_nodes=2, procs_per_node=1, env=env, function=code)
        runs.wait("every rank's end", lambda: runs.get("statefulset/run")["status"].get("readyReplicas") == 2)
        found = [each["status"]["containerStatuses"][0] for each in runs.pods()]
        assert [each["lastState"]["terminated"]["exitCode"] for each in found] == [0, 0]
        assert runs.messages()[0] == f'"run-0.run.{runs.name}.svc.cluster.local"'
        time.sleep(5)
        assert [each["status"]["containerStatuses"][0]["restartCount"] for each in runs.pods()] == [1, 1]


class TestFailures:
    """The reaction of JobSet's controller to failed pods, by stepset's rules."""

    def _restarts(self, runs: ClusterNamespace) -> int:
        return int(runs.get("jobset/run")["status"].get("restarts", 0))

    def test_an_error_of_the_code_restarts_the_gang_up_to_max_restarts(self, runs: ClusterNamespace) -> None:
        runs.start(framework="plain", function="raise SystemExit(7)", restart={"max_restarts": 1})
        assert (runs.ended(), self._restarts(runs)) == ("Failed", 1)

    def test_an_error_is_final_if_the_job_requires_it(self, runs: ClusterNamespace) -> None:
        restart = {"max_restarts": 3, "user_errors": "fail"}
        runs.start(framework="plain", function="raise SystemExit(7)", restart=restart)
        assert (runs.ended(), self._restarts(runs)) == ("Failed", 0)
        verdict = json.loads(runs.messages()[0])["stepset"]["failed"]
        assert (verdict["rank"], verdict["exit_code"]) == (0, 7)

    def test_a_killed_process_is_not_an_error_of_the_code(self, runs: ClusterNamespace) -> None:
        code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
        restart = {"max_restarts": 1, "user_errors": "fail"}
        runs.start(framework="plain", function=code, restart=restart)
        assert (runs.ended(), self._restarts(runs)) == ("Failed", 1)

    def test_a_result_over_the_limit_is_final(self, runs: ClusterNamespace) -> None:
        runs.start(framework="plain", function=RESULT.format("'x' * 5000"), restart={"max_restarts": 3})
        assert (runs.ended(), self._restarts(runs)) == ("Failed", 0)

    def test_the_deadline_is_final(self, runs: ClusterNamespace) -> None:
        code = "import time; time.sleep(600)"
        runs.start(framework="plain", function=code, deadline="5s", restart={"max_restarts": 3})
        assert (runs.ended(), self._restarts(runs)) == ("Failed", 0)

    def test_an_eviction_does_not_count_and_the_next_attempt_has_its_number(self, runs: ClusterNamespace) -> None:
        code = (
            "import os, sys, time;"
            "print('attempt', os.environ['STEPSET_ATTEMPT'], flush=True);"
            "time.sleep(600 if os.environ['STEPSET_ATTEMPT'] == '0' else 0);"
            + RESULT.format("os.environ['STEPSET_ATTEMPT']")
        )
        runs.start(framework="plain", num_nodes=2, function=code)
        runs.wait_running(2)
        runs.evict(runs.pods()[1]["metadata"]["name"])
        assert runs.ended() == "Completed"
        status = runs.get("jobset/run")["status"]
        assert (status.get("restarts"), status.get("restartsCountTowardsMax", 0)) == (1, 0)
        assert runs.messages()[0] == '"1"'


class TestElastic:
    """An elastic world is not a gang: its Job replaces pods one by one."""

    JOB: dict[str, Any] = {  # noqa: RUF012  # a table
        "framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2}},
        "num_nodes": 2,
        "procs_per_node": 1,
        "env": {"NODE_RANK": "$(STEPSET_NODE_RANK)"},
    }

    def test_as_many_as_the_world_needs_are_a_success(self, runs: ClusterNamespace) -> None:
        code = "import os, time; time.sleep(600 * (os.environ['STEPSET_NODE_RANK'] == '1'))"
        runs.start(**self.JOB, command=[runs.cluster.python, "-c", code])
        assert runs.ended() == "Completed"

    def test_an_evicted_node_is_replaced_and_the_others_continue(self, runs: ClusterNamespace) -> None:
        code = "import time; time.sleep(600)"
        runs.start(**self.JOB, command=[runs.cluster.python, "-c", code])
        runs.wait_running(2)
        first, second = (each["metadata"]["uid"] for each in runs.pods())
        runs.evict(runs.pods()[1]["metadata"]["name"])
        runs.wait("a new pod", lambda: len({each["metadata"]["uid"] for each in runs.pods()} - {first, second}) == 1)
        runs.wait_running(2)
        assert first in {each["metadata"]["uid"] for each in runs.pods()}
        assert runs.get("jobset/run")["status"].get("restarts", 0) == 0


PROGRAMS = {"openmpi": "mpirun.openmpi", "mpich": "mpirun.mpich"}


# (whether the launcher is a node, user)
MPI_CASES = list(product((False, True), (0, 1000)))
MpiNamespaces = tuple[str, dict[tuple[bool, int], ClusterNamespace]]


@pytest.fixture(scope="module", params=PROGRAMS)
def mpi_namespaces(
    request: pytest.FixtureRequest,
    cluster: Cluster,  # noqa: F811  # fixture
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MpiNamespaces]:
    """Runs all cases of an implementation at the same time, each in a namespace, because they mostly wait."""
    program = PROGRAMS[request.param]
    if cluster.choice is None or not shutil.which(program) or not Path("/usr/sbin/sshd").exists():
        pytest.skip(f"needs the test cluster, {program} and OpenSSH's server on this machine")
    with ExitStack() as stack:
        namespaces = {case: ClusterNamespace(cluster, stack.enter_context(cluster.namespace())) for case in MPI_CASES}
        for case, runs in namespaces.items():
            keys = tmp_path_factory.mktemp("keys")
            runs.apply([_with_keys(each, keys) for each in _mpi_objects(runs, request.param, *case)])
        yield request.param, namespaces


def _mpi_objects(runs: ClusterNamespace, implementation: str, as_node: bool, user: int) -> list[Manifest]:
    program = PROGRAMS[implementation]
    rank = "OMPI_COMM_WORLD_RANK" if implementation == "openmpi" else "PMI_RANK"
    code = f"import os; rank = os.environ[{rank!r}]\nif rank == '0': " + RESULT.format("os.uname().nodename")
    home = "/root" if user == 0 else "/home/trainer"
    options = {"run_launcher_as_node": as_node, "ssh_auth_mount_path": f"{home}/.ssh"}
    root = ["--allow-run-as-root"] if implementation == "openmpi" and user == 0 else []
    return runs.render(
        framework={"kind": "mpi", "implementation": implementation, **options},
        num_nodes=2,
        procs_per_node=2,
        agent=True,
        command=[program, *root, "/usr/bin/python3", "-c", code],
        network={"cluster_domain": "cluster.local"},
        pod_template={"securityContext": {"runAsUser": user, "runAsGroup": user}},
        env={"OMPI_MCA_mca_base_component_show_load_errors": "0"},
        namespace=runs.name,
    )


class TestMpi:
    """Ranks are started over ssh, with keys created for the run and only stepset's configuration."""

    @pytest.mark.parametrize(
        "case", MPI_CASES, ids=lambda c: f"{'as a node' if c[0] else 'beside'}-{'an ordinary user' if c[1] else 'root'}"
    )
    def test_every_rank_is_started_on_its_node(self, mpi_namespaces: MpiNamespaces, case: tuple[bool, int]) -> None:
        implementation, namespaces = mpi_namespaces
        runs, (as_node, _) = namespaces[case], case
        assert runs.ended() == "Completed"
        # Open MPI numbers the ranks on its launcher's own node first, regardless of the hostfile's order.
        first = "launcher" if as_node and implementation == "openmpi" else "node"
        assert runs.messages("launcher") == [f'"run-{first}-0-0"']


def _with_keys(each: Manifest, directory: Path) -> Manifest:
    """Returns a Secret with keys instead of the placeholders, as the backend creates them."""
    if each["kind"] != "Secret":
        return each
    key = directory / "key"
    command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", str(key)]
    subprocess.run(command, check=True)
    return {
        **each,
        "stringData": {
            SSH_PRIVATE_KEY: key.read_text("utf-8"),
            SSH_PUBLIC_KEY: key.with_suffix(".pub").read_text("utf-8"),
        },
    }


class TestOverlay:
    """`pod_template` is merged as by kubectl's strategic merge."""

    BASE: Manifest = {  # noqa: RUF012  # a table
        "nodeSelector": {"a": "1"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "containers": [
            {
                "name": "node",
                "image": "a",
                "command": ["x", "y"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 29500}],
                "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            }
        ],
        "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
    }

    @pytest.mark.parametrize(
        "patch",
        [
            {"nodeSelector": {"b": "2"}},
            {"nodeSelector": None},
            {"nodeSelector": {"$patch": "replace", "z": "1"}},
            {"tolerations": [{"key": "other", "operator": "Exists"}]},
            {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["b"]}, {"ip": "10.0.0.2", "hostnames": ["c"]}]},
            {"volumes": [{"name": "cache", "emptyDir": {}}]},
            {"volumes": [{"name": "dshm", "emptyDir": {"sizeLimit": "1Gi"}}]},
            {"volumes": [{"name": "dshm", "$patch": "delete"}]},
            {"containers": [{"name": "sidecar", "image": "s"}]},
            {"containers": [{"name": "node", "command": ["z"], "env": [{"name": "A", "value": "9"}]}]},
            {"containers": [{"name": "node", "env": [{"name": "A", "$patch": "delete"}, {"name": "C", "value": "3"}]}]},
            {"containers": [{"name": "node", "env": [{"$patch": "replace"}, {"name": "C", "value": "3"}]}]},
            {"containers": [{"name": "node", "ports": [{"containerPort": 29500, "name": "r"}, {"containerPort": 1}]}]},
            {"containers": [{"name": "node", "volumeMounts": [{"mountPath": "/dev/shm", "name": "big"}]}]},
            {"containers": [{"name": "node", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]},
            {"affinity": {"nodeAffinity": {}}, "securityContext": {"runAsUser": 1}},
        ],
        ids=lambda patch: json.dumps(patch)[:60],
    )
    def test_merges_as_kubectl_does(self, cluster: Cluster, patch: Manifest) -> None:  # noqa: F811  # fixture
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": self.BASE}
        words = ["patch", "--local", "--type=strategic", "-o", "json", "-f", "-", "-p", json.dumps({"spec": patch})]
        theirs = json.loads(cluster.kubectl(*words, text=json.dumps(pod)))["spec"]
        assert _by_name(merge(self.BASE, patch)) == _by_name(theirs)


def _by_name(spec: Manifest) -> Manifest:
    """Sorts containers and volumes by name: kubectl puts new entries first, stepset last."""
    ordered = {
        field: sorted(spec[field], key=lambda row: row["name"]) for field in ("containers", "volumes") if field in spec
    }
    inner = [
        {**c, **({"env": sorted(c["env"], key=lambda e: e["name"])} if "env" in c else {})}
        for c in ordered["containers"]
    ]
    return {**spec, **ordered, "containers": inner}
