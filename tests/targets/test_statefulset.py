"""The StatefulSet: the platform's variables, what a pod derives from them, and the state of a finished pod.

The tests run the shell script around the command in a temporary directory instead of the pod's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.plan.expand import expand
from stepset.rendering import render
from stepset.targets.names import COMPLETION_INDEX, RESTART_ATTEMPT, RUN_DIR
from stepset.targets.pods.shell import quote
from tests.targets.environments import ODD_NAMES, environments, kubelet_command, kubelet_env, texts
from tests.targets.making import container, env, of_kind, rendered, request, workload

PLATFORM = {
    "POD_NAME": "digits-1",
    "POD_NAMESPACE": "ml",
    "SVC_NAME": "digits",
    "POD_NUMS": "2",
    "POD_PORT": "29500",
}
RUNS_IT = {"kind": "torch", "launch": "command"}
"""A framework in which each pod runs the command itself."""


class Pod:
    """A pod's container on this machine: its script, its variables, and the directory that is kept across restarts."""

    def __init__(self, directory: Path, platform: dict[str, str], **job: Any) -> None:
        self.directory = directory
        found = container(rendered("statefulset", **{"framework": RUNS_IT, **job}))
        assert found["command"][:2] == ["/bin/sh", "-c"]
        fields = {"metadata.name": platform["POD_NAME"], "metadata.namespace": platform["POD_NAMESPACE"]}
        own = kubelet_env(found, fields, {"PATH": os.environ["PATH"]})
        self.script = kubelet_command(found, own)[2].replace(RUN_DIR, str(directory))
        self.environ = {**own, **platform}
        self.shell = "/bin/sh"

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.shell, "-c", self.script],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self) -> tuple[int, str]:
        """Starts the container once; returns (exit code, output)."""
        with self.start() as process:
            out, _ = process.communicate(timeout=30)
            return process.returncode, out.decode()

    def wait_for(self, file: str) -> None:
        deadline = time.monotonic() + 30
        while not (self.directory / file).exists():
            assert time.monotonic() < deadline, f"no {file}"
            time.sleep(0.02)

    def holds(self) -> bool:
        """Returns whether the next start waits instead of training; stops it."""
        with self.start() as process:
            self.wait_for("holding")
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # in a container, the end of its first process ends the others
            out, _ = process.communicate(timeout=30)
            return (code, out) == (0, b"")


Maker = Callable[..., Pod]


@pytest.fixture
def pod(tmp_path: Path) -> Maker:
    def make(*command: str, platform: dict[str, str] | None = None, **job: Any) -> Pod:
        wanted = {"num_nodes": 2, "procs_per_node": 1, "agent": False, **job}
        return Pod(tmp_path, {**PLATFORM, **(platform or {})}, command=list(command), **wanted)

    return make


def _shown(*names: str) -> list[str]:
    """Returns a command that prints its variables as JSON."""
    return ["python3", "-c", f"import json, os; print(json.dumps([os.environ.get(n) for n in {names!r}]))"]


class TestPlatform:
    def test_every_pod_has_the_platforms_five_variables(self) -> None:
        found = env(rendered("statefulset", num_nodes=3))
        assert found["POD_NAME"] == "metadata.name"
        assert found["POD_NAMESPACE"] == "metadata.namespace"
        assert (found["SVC_NAME"], found["POD_NUMS"], found["POD_PORT"]) == ("digits", "3", "29500")

    def test_pods_start_together_under_the_headless_service(self) -> None:
        objects = rendered("statefulset", num_nodes=3, network={"subdomain": "ring"})
        service, spec = of_kind(objects, "Service"), workload(objects)["spec"]
        assert service["metadata"]["name"] == spec["serviceName"] == "ring"
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert (spec["replicas"], spec["podManagementPolicy"]) == (3, "Parallel")
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        assert service["spec"]["selector"].items() <= labels.items()

    def test_the_manifest_contains_no_value_that_differs_between_pods(self) -> None:
        found = env(rendered("statefulset", num_nodes=2))
        assert {"PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "STEPSET_NODE_RANK"}.isdisjoint(found)
        assert found["PET_NNODES"] == "2"


class TestDerived:
    def test_torchruns_variables_come_from_the_pods_name(self, pod: Maker) -> None:
        names = ("PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "STEPSET_NODE_RANK")
        _, out = pod(*_shown(*names)).run()
        assert json.loads(out) == ["1", "digits-0.digits.ml.svc.cluster.local", "29500", "2", "1"]

    def test_a_script_without_launcher_gets_the_workers(self, pod: Maker) -> None:
        job = {"framework": {"kind": "torch", "launcher": "none"}}
        _, out = pod(*_shown("RANK", "WORLD_SIZE", "MASTER_ADDR", "PET_NNODES"), **job).run()
        assert json.loads(out) == ["1", "2", "digits-0.digits.ml.svc.cluster.local", None]

    def test_the_platform_may_have_other_values_than_the_manifest(self, pod: Maker) -> None:
        there = {"POD_NAME": "other-job-11", "SVC_NAME": "svc", "POD_NAMESPACE": "team", "POD_PORT": "1234"}
        found = pod(*_shown("PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"), platform=there)
        _, out = found.run()
        assert json.loads(out) == ["11", "other-job-0.svc.team.svc.cluster.local", "1234"]

    def test_the_clusters_domain_is_the_jobs(self, pod: Maker) -> None:
        _, out = pod(*_shown("PET_MASTER_ADDR"), network={"cluster_domain": "k8s.example"}).run()
        assert json.loads(out) == ["digits-0.digits.ml.svc.k8s.example"]

    def test_the_jobs_variables_can_use_derived_variables(self, pod: Maker) -> None:
        job = {
            "env": {"WHO": "node $(PET_NODE_RANK) of $(PET_NNODES)", "AND": "$(WHO)!", "NO": "$(UNSET) $$(PET_NNODES)"}
        }
        _, out = pod(*_shown("WHO", "AND"), **job).run()
        assert json.loads(out) == ["node 1 of 2", "node 1 of 2!"]

    def test_a_name_that_a_shell_does_not_allow_is_set(self, pod: Maker) -> None:
        _, out = pod(*_shown("my.var"), env={"my.var": "node $(PET_NODE_RANK)"}).run()
        assert json.loads(out) == ["node 1"]

    def test_arguments_can_use_them_and_keep_special_characters(self, pod: Maker) -> None:
        args = ["$(PET_NODE_RANK)", "a b", "it's", '"', "$HOME", "`id`", "\\", "*", ""]
        _, out = pod("python3", "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", args=args).run()
        assert json.loads(out) == ["1", *args[1:]]

    @settings(max_examples=60, deadline=None)
    @given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=30))
    def test_a_quoted_text_expands_as_in_kubernetes(self, text: str) -> None:
        for word in (text, f"{text}$(A)", f"$$(A){text}", f"$({text})$(A"):
            done = subprocess.run(
                ["/bin/sh", "-c", expand(f"printf %s {quote(word, {'A': 'A'})}", {})],
                env={"A": "v a'l"},
                capture_output=True,
                check=True,
            )
            assert done.stdout.decode() == expand(word, {"A": "v a'l"})


def _printed(
    tmp_path: Path, shell: str, variables: dict[str, str], args: list[str]
) -> tuple[dict[str, str], list[str]]:
    """Returns the variables and arguments of the command in a StatefulSet's pod 1 of 2."""
    program = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
    job = {"num_nodes": 2, "procs_per_node": 1, "agent": False, "command": [sys.executable, "-ISc", program]}
    for file in tmp_path.iterdir():
        file.unlink()
    found = Pod(tmp_path, PLATFORM, **job, args=args, env=variables)
    found.shell = shell
    code, out = found.run()
    assert code == 0, out
    env, words = json.loads(out)
    return env, words


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """This machine's shells, under the name `sh`, by which they behave as in an image."""
    directory = tmp_path_factory.mktemp("shells")
    found = []
    for name in ("dash", "bash", "busybox"):
        if program := shutil.which(name):
            (directory / name).mkdir(parents=True)
            (directory / name / "sh").symlink_to(program)
            found.append(str(directory / name / "sh"))
    return found


class TestEnvironment:
    """The command gets the variables that the kubelet gives to the pods of other targets."""

    @settings(max_examples=settings().max_examples // 5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(environments(), st.lists(texts(), max_size=3))
    @example(
        {"my.var": "1", "A": "$(my.var)$(B)", "B": "$(PET_NODE_RANK)$(C)", "C": "c", "-x": "$(B)"}, ["$(C)$(B)$$(A)"]
    )
    @example({name: f"<{name}>" for name in ODD_NAMES}, [f"$({name})" for name in ODD_NAMES])
    @example({name: f"$(PET_NODE_RANK)$({name})" for name in ODD_NAMES}, [f"$({name})" for name in ODD_NAMES])
    def test_it_is_that_of_the_jobset_target(
        self, tmp_path: Path, shells: list[str], variables: dict[str, str], args: list[str]
    ) -> None:
        job = {"num_nodes": 2, "procs_per_node": 1, "agent": False, "args": args, "env": variables}
        there = container(rendered("jobset", framework=RUNS_IT, command=["a"], **job))
        fields = {COMPLETION_INDEX: "1", RESTART_ATTEMPT: "0"}
        env = kubelet_env(there, fields, {})
        for shell in shells:
            own, words = _printed(tmp_path, shell, variables, args)
            names = {*variables, "PWD", "OLDPWD"}
            assert {name: own.get(name) for name in names} == {name: env.get(name) for name in names}
            assert words == kubelet_command(there, env)[1:]
            assert not [name for name in own if name.startswith("stepset_")]

    @pytest.mark.parametrize("name", ["POD_NAME", "SVC_NAME", "POD_NUMS", "POD_PORT", "POD_NAMESPACE", "stepset_x"])
    def test_the_platforms_variables_and_those_of_the_script_are_reserved(self, name: str) -> None:
        for field, job in (
            (f"env.{name}", {"env": {name: "1"}}),
            (
                f"pod_template.containers.node.env.{name}",
                {"pod_template": {"containers": [{"name": "node", "env": [{"name": name, "value": "1"}]}]}},
            ),
        ):
            with pytest.raises(BadInputError) as caught:
                render(request(**job), "statefulset")
            assert str(caught.value) == f"{field}: target statefulset sets this variable itself; use another name"
            if name != "stepset_x":
                render(request(**job), "jobset")

    def test_a_path_without_the_tools_of_the_shell_does_not_matter(self, pod: Maker) -> None:
        shown = "import os, sys; print(os.environ['PATH'], os.environ['my.var']); sys.exit(3)"
        job = {"env": {"PATH": "/nowhere", "my.var": "1"}, "restart": {"max_restarts": 1}}
        found = pod(sys.executable, "-Ic", shown, **job)
        assert [found.run() for _ in range(2)] == [(3, "/nowhere 1\n"), (3, "/nowhere 1\n")]
        assert found.holds()

    def test_the_pod_template_may_replace_a_variable_and_the_command(self, tmp_path: Path) -> None:
        rows = [{"name": "A", "value": "$(PET_NODE_RANK) of the template"}, {"name": "B", "value": "$(A)!"}]
        template = {"containers": [{"name": "node", "env": rows, "args": ["$(B)", "$$"]}]}
        job = {"num_nodes": 2, "procs_per_node": 1, "agent": False, "env": {"A": "1"}, "pod_template": template}
        found = Pod(tmp_path, PLATFORM, **job, command=["printf", "%s,"], args=["x"])
        assert found.run() == (0, "1 of the template!,$,")


class TestFinished:
    def test_a_rank_that_has_finished_does_not_train_again_and_waits(self, pod: Maker) -> None:
        found = pod("sh", "-c", "echo trained")
        assert found.run() == (0, "trained\n")
        assert found.holds()

    def test_a_waiting_pod_is_ready(self, pod: Maker) -> None:
        found = pod("true")
        probe = container(rendered("statefulset"))["readinessProbe"]["exec"]["command"]
        assert probe[:2] == ["/bin/sh", "-c"]
        ready = ["/bin/sh", "-c", probe[2].replace(RUN_DIR, str(found.directory))]
        found.run()
        assert subprocess.run(ready).returncode == 1
        assert found.holds()
        assert subprocess.run(ready).returncode == 0

    def test_a_failure_is_a_verdict_too_with_its_exit_code(self, pod: Maker) -> None:
        found = pod("sh", "-c", "exit 7")
        assert found.run()[0] == 7
        assert found.holds()

    def test_the_command_restarts_up_to_max_restarts_and_counts_attempts(self, pod: Maker) -> None:
        found = pod("sh", "-c", 'echo "$STEPSET_ATTEMPT"; exit 7', restart={"max_restarts": 2})
        assert [found.run() for _ in range(3)] == [(7, "0\n"), (7, "1\n"), (7, "2\n")]
        assert found.holds()

    def test_a_pod_that_is_stopped_externally_has_no_verdict(self, pod: Maker) -> None:
        found = pod("sh", "-c", 'trap "echo saved; exit 0" TERM; touch "$DIR/up"; while :; do sleep 0.1; done')
        found.environ["DIR"] = str(found.directory)
        with found.start() as process:
            found.wait_for("up")
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=30)
            assert (process.returncode, out) == (0, b"saved\n")
        assert not (found.directory / "finished").exists()
