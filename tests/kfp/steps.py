"""Steps in pods of the real cluster, as KFP and Argo start them: command, executor input, labels, signals, owner.

Only the launcher is not KFP's: `emissary` replaces it. After SIGTERM it gives its child as long as argoexec does.
"""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml
from kfp import compiler, dsl

from stepset.targets.pods.strategic_merge import merge
from stepset.targets.rbac import Account, rbac
from stepset_kfp import distributed_train
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError
from tests.cluster.testbed.pod import Mount
from tests.kfp.node_names import WORKFLOW, step_node

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "pipeline-runner"
SHORTEST, LONGEST = 0.08, 2.04
"""Seconds between SIGTERM and the end of a step, measured with argoexec 4.0.5, which looks once a second whether its
child has ended: docs/testing/kfp-backend.md."""
_EMISSARY = """\
import os, random, signal, subprocess, sys, time
child = subprocess.Popen(sys.argv[1:], start_new_session=True)
def end(number, _):
    os.killpg(child.pid, signal.SIGTERM)
    seconds = random.uniform(*BETWEEN)
    print(f"launcher: ends {seconds:.2f} s after SIGTERM", flush=True)
    time.sleep(seconds)
    os._exit(143)
signal.signal(signal.SIGTERM, end)
code = child.wait()
sys.exit(code if code >= 0 else 128 - code)
"""


def emissary(shortest: float = SHORTEST, longest: float = LONGEST) -> str:
    """Returns the program of a launcher that ends a random time between two limits, in seconds, after SIGTERM."""
    return _EMISSARY.replace("BETWEEN", repr((shortest, longest)))


# Saves a checkpoint, prints where it begins, and trains until the file `go` exists.
WAITS = """\
import json, os, pathlib, time
home = pathlib.Path(os.environ["STEPSET_CHECKPOINT_DIR"])
home.mkdir(parents=True, exist_ok=True)
rank = os.environ["STEPSET_NODE_RANK"]
begin = "checkpoint" if os.environ.get("STEPSET_RESUME_FROM") else "nothing"
(home / ("rank-" + rank)).write_text("saved")
print("begins from", begin, "attempt", os.environ["STEPSET_ATTEMPT"], flush=True)
while not (home / "go").exists():
    time.sleep(0.1)
if rank == "0":
    pathlib.Path(os.environ["STEPSET_RESULT_FILE"]).write_text(json.dumps({"begin": begin, "accuracy": 0.5}))
"""

# The kind that Argo's ownerReferences name; the garbage collector deletes dependents only if the owner's kind exists.
WORKFLOWS = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workflows.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {kind: Workflow, plural: workflows, singular: workflow}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@dataclass
class Steps:
    """Steps of one pipeline run in a namespace, with the Role of `stepset rbac --backend kfp`.

    Args:
        cluster: the test cluster.
        namespace: namespace of the test.
        shared: a directory that steps, ranks and the test see at the same path.
        launcher: Python program whose arguments are the step's command, which it starts.
        image: image of the steps; empty: the test cluster's, with this machine's Python. In another image a step runs
            under the restricted Pod Security Standard, with a read-only root file system.
    """

    cluster: Cluster
    namespace: str
    shared: Path
    launcher: str = field(default_factory=emissary)
    image: str = ""
    _count: int = field(default=0)

    def prepare(self, *, role: bool = True) -> None:
        """Creates the account, its Role and the workflow that owns the steps."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
        granted = (
            rbac("kfp", gang="kueue", mpi=True, namespace=self.namespace, accounts=[Account(ACCOUNT)]) if role else []
        )
        workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": WORKFLOW}}
        text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [account, *granted, workflow]})
        self.cluster.kubectl("apply", "-n", self.namespace, "-f", "-", text=text)

    def start(
        self,
        text: str,
        *,
        node: str = step_node(),
        task_config: dict[str, Any] | None = None,
        **inputs: Any,
    ) -> str:
        """Starts a step that trains; returns its pod's name.

        Args:
            text: text of the training script.
            node: Argo's name of the step.
            task_config: the task's settings as KFP's driver passes them.
            inputs: inputs of distributed_train.
        """
        (self.shared / "train.py").write_text(dedent(text))
        words, values, kinds = self._training(inputs)
        return self._start((words, {**values, "task_config": task_config or {}}, kinds), node)

    def start_other(self, component: Any, *, node: str = "", **inputs: Any) -> str:
        """Starts a step of another component; returns its pod's name. `node` is Argo's name of the step."""

        @dsl.pipeline(name="digits")
        def pipeline():
            component(**inputs)

        return self._start(self._compiled(pipeline), node or step_node(component.name))

    def start_program(self, text: str) -> str:
        """Starts a step that runs a Python program instead of a component; returns its pod's name."""
        return self._start_pod(self._next(), ["python3", "-c", text], step_node("program"))

    def _start(self, compiled: tuple[list[str], dict[str, Any], dict[str, str]], node: str) -> str:
        name = self._next()
        return self._start_pod(name, self._command(compiled, name), node)

    def _next(self) -> str:
        self._count += 1
        return f"{WORKFLOW}-{self._count}"

    def _start_pod(self, name: str, command: list[str], node: str) -> str:
        spec = self._in_image(command) if self.image else self._with_programs_of_this_machine(command)
        spec["containers"][0].setdefault("env", []).append(
            {"name": "KFP_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        )
        workflow = self.cluster.get(f"workflows/{WORKFLOW}", self.namespace)
        owner = {key: workflow[key] for key in ("apiVersion", "kind")}
        owner |= {key: workflow["metadata"][key] for key in ("name", "uid")}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {"pipeline/runid": "8d0f3f0e", "workflows.argoproj.io/workflow": WORKFLOW},
                "annotations": {"workflows.argoproj.io/node-name": node},
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {**spec, "serviceAccountName": ACCOUNT, "terminationGracePeriodSeconds": 30},
        }
        self.cluster.apply(pod, self.namespace)
        return name

    def _with_programs_of_this_machine(self, command: list[str]) -> dict[str, Any]:
        spec = self.cluster.pod_spec(["python3", "-c", self.launcher, *command], "main")
        mounts = [Mount(str(ROOT / "src")), Mount(str(ROOT / "components")), Mount(str(self.shared), read_only=False)]
        spec = merge(spec, self.cluster.pod_template("main", mounts)["spec"])
        container = spec["containers"][0]
        container["command"][0] = self.cluster.python
        container["env"] = [{"name": name, "value": value} for name, value in self.path().items()]
        return spec

    def _in_image(self, command: list[str]) -> dict[str, Any]:
        writable = {"tmp": {"emptyDir": {}}, "shared": {"hostPath": {"path": str(self.shared)}}}
        paths = {"tmp": "/tmp", "shared": str(self.shared)}
        container = {
            "name": "main",
            "image": self.image,
            "imagePullPolicy": "Never",
            "command": ["python3", "-c", self.launcher, *command],
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
        volumes = [{"name": name, **source} for name, source in writable.items()]
        return {"restartPolicy": "Never", "containers": [container], "volumes": volumes}

    def template(self) -> dict[str, Any]:
        """Returns the pod template with which training pods run on the test cluster, with the shared directory."""
        return self.cluster.pod_template("node", [Mount(str(self.shared), read_only=False)])

    def path(self) -> dict[str, str]:
        """Returns the variable PATH for pods of the test cluster, with Python and torchrun."""
        return {"PATH": f"{Path(self.cluster.python).parent}:/usr/local/bin:/usr/bin:/bin"}

    def _training(self, inputs: dict[str, Any]) -> tuple[list[str], dict[str, Any], dict[str, str]]:
        template = merge(self.template(), inputs.pop("pod_template", {}))
        inputs["env"] = {**self.path(), **inputs.get("env", {})}
        given = {"framework": "plain", "num_nodes": 2, "procs_per_node": 1, "image": self.cluster.image, **inputs}

        @dsl.pipeline(name="digits")
        def pipeline():
            distributed_train(base_dir=self.shared, script="train.py", pod_template=template, **given)

        return self._compiled(pipeline)

    def _compiled(self, pipeline: Any) -> tuple[list[str], dict[str, Any], dict[str, str]]:
        """Returns command, inputs and output artifacts of a pipeline's only step."""
        compiler.Compiler().compile(pipeline, str(self.shared / "pipeline.yaml"))
        spec = yaml.safe_load((self.shared / "pipeline.yaml").read_text())
        (executor,) = spec["deploymentSpec"]["executors"].values()
        (task,) = spec["root"]["dag"]["tasks"].values()
        (component,) = spec["components"].values()
        values = {
            name: each["defaultValue"]
            for name, each in component["inputDefinitions"]["parameters"].items()
            if "defaultValue" in each
        }
        values |= {
            name: each["runtimeValue"]["constant"]
            for name, each in task.get("inputs", {}).get("parameters", {}).items()
        }
        artifacts = component.get("outputDefinitions", {}).get("artifacts", {})
        kinds = {name: each["artifactType"]["schemaTitle"] for name, each in artifacts.items()}
        container = executor["container"]
        return [*container["command"], *container["args"]], values, kinds

    def _command(self, compiled: tuple[list[str], dict[str, Any], dict[str, str]], pod: str) -> list[str]:
        words, values, kinds = compiled
        out = self.out(pod)
        executor_input = {
            "inputs": {"parameterValues": values},
            "outputs": {
                "outputFile": str(out / "executor_output.json"),
                "parameters": {name: {"outputFile": str(out / name)} for name in ("result", "run")},
                "artifacts": {
                    name: {
                        "artifacts": [
                            {"name": name, "type": {"schemaTitle": kind}, "uri": str(out / name), "metadata": {}}
                        ]
                    }
                    for name, kind in kinds.items()
                },
            },
        }
        return [json.dumps(executor_input) if word == "{{$}}" else word for word in words]

    def out(self, pod: str) -> Path:
        """Returns the directory of a step's outputs."""
        return self.shared / pod

    def log(self, pod: str) -> str:
        """Returns the output of a step, or the error of the request."""
        try:
            return self.cluster.logs(pod, self.namespace)
        except TestbedError as error:  # the pod has not started, or is deleted
            return str(error)

    def jobsets(self) -> list[dict[str, Any]]:
        """Returns all runs of the namespace."""
        return list(self.cluster.get("jobsets", self.namespace)["items"])

    def training_pods(self) -> list[dict[str, Any]]:
        """Returns the pods of all runs of the namespace."""
        return list(self.cluster.get("pods", self.namespace, "jobset.sigs.k8s.io/jobset-name")["items"])

    def left(self) -> list[str]:
        """Returns the objects in the namespace as kind/name, except the steps' pods and the default ConfigMap."""
        kinds = "jobsets,jobs,pods,services,configmaps,secrets"
        found = self.cluster.get(kinds, self.namespace)["items"]
        names = {f"{each['kind']}/{each['metadata']['name']}" for each in found}
        own = {f"Pod/digits-x7k2p-{count}" for count in range(1, self._count + 1)}
        return sorted(names - own - {"ConfigMap/kube-root-ca.crt"})

    def wait(self, pod: str, timeout: float = 420.0) -> int:
        """Waits until a step is over; returns its exit code."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            status = self.cluster.get(f"pod/{pod}", self.namespace)["status"]
            for each in status.get("containerStatuses") or ():
                if ended := each["state"].get("terminated"):
                    return int(ended["exitCode"])
            time.sleep(0.3)
        raise AssertionError(f"{pod} is not over after {timeout:.0f} s:\n{self.log(pod)}")

    def wait_for_line(self, pod: str, text: str, timeout: float = 420.0) -> None:
        """Waits until a step's output contains a text."""
        deadline = time.monotonic() + timeout
        while text not in (log := self.log(pod)):
            assert time.monotonic() < deadline, f"no {text!r} in\n{log}"
            time.sleep(0.3)
