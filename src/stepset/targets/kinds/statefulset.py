"""The target `statefulset`, which renders a headless Service and a StatefulSet.

The target is for platforms that accept no other workloads. Such a platform sets the variables POD_NAME, SVC_NAME,
POD_NUMS, POD_PORT and POD_NAMESPACE. From these variables, each pod derives its rank and the address of node 0.

A StatefulSet always restarts the containers of its pods. Therefore a container starts once more after its command has
succeeded, or after its command has failed and no restart is left. After this last start, the container only waits and
does not run the command, and the pod becomes Ready. The pod does not become Ready before this last start of the
container. The last termination state of the container contains the result of the command (docs/targets.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.plan.model import NODE, LaunchPlan, PodGroup
from stepset.plan.values import Text, resolve, texts
from stepset.safe_names import LABEL_LIMIT
from stepset.spec.job import TrainingJob
from stepset.spec.template import beside_node, node_container, pod_spec
from stepset.targets import gang
from stepset.targets.companions import companions, headless_service
from stepset.targets.kinds.jobset import pod_templates
from stepset.targets.kinds.limits import indexed_name_budget, one_group, restarts_after_any_failure
from stepset.targets.metadata import RUN, workload_metadata
from stepset.targets.names import RUN_DIR, SINGLE_GROUP_HOSTS, InManifest, PodNames
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods.env import container_env
from stepset.targets.pods.shell import PREFIX
from stepset.targets.pods.shell_environment import ShellEnvironment
from stepset.targets.pods.sidecars import NEVER
from stepset.targets.pods.template import PodStyle, agent_command, with_container
from stepset.targets.request import RenderRequest
from stepset.targets.target_spec import TargetSpec

# The maximum length of the suffix in the label controller-revision-hash. The value of this label consists of the name
# of the StatefulSet and the suffix.
_REVISION_SUFFIX = 11
_SCRIPT = """\
# If the last termination of this pod was its verdict, this start only waits.
if [ -e {dir}/finished ]; then
  trap 'exit 0' TERM INT
  : > {dir}/holding
  stepset_sleep=$(command -pv sleep)
  while :; do "$stepset_sleep" 3600 & wait "$!"; done
fi
stepset_attempt=0
[ ! -e {dir}/attempts ] || read -r stepset_attempt < {dir}/attempts
echo "$((stepset_attempt + 1))" > {dir}/attempts
{lines}# Signals for this shell stop the command, too.
set -- {command}
{cleanup}
stepset_child= stepset_stopped=
trap 'stepset_stopped=1; [ -z "$stepset_child" ] || kill -TERM "$stepset_child" 2>/dev/null' TERM INT
"$@" &
stepset_child=$!
wait "$stepset_child"; stepset_code=$?
while kill -0 "$stepset_child" 2>/dev/null; do wait "$stepset_child"; stepset_code=$?; done
# Exit code 0 is a verdict; any other, if no restart is left. A stop signal leaves none.
if [ -z "$stepset_stopped" ] && {{ [ "$stepset_code" -eq 0 ] || [ "$stepset_attempt" -ge {max_restarts} ]; }}; then
  : > {dir}/finished
fi
exit "$stepset_code"
"""


def render(request: RenderRequest) -> list[dict[str, Any]]:
    """Returns the manifests, in the order in which they must be applied."""
    names = PodNames(request.plan, request.run, request.subdomain, SINGLE_GROUP_HOSTS)
    templates = pod_templates(request, PodStyle(names, None, restart_policy="Always", scratch=True))
    template = with_container(templates[NODE], lambda container: _entrypoint(request, container, names))
    workload = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": workload_metadata(request, more_labels=gang.queue_labels(request.job)),
        "spec": {
            "serviceName": request.subdomain,
            "replicas": request.plan.group(NODE).count,
            # With this policy, all pods start at the same time. With the default policy, the second pod would not start
            # until the first pod is Ready. But the first pod does not become Ready until the second pod has started.
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {RUN: request.run}},
            "template": template,
        },
    }
    return [*companions(request, names), headless_service(request), *gang.pod_groups(request, templates), workload]


def _platform_env(request: RenderRequest) -> list[dict[str, Any]]:
    """Returns the variables of the platform in the form of a container's `env`."""
    port = next(iter(request.plan.ports.values()), request.job.network.port)
    return [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "SVC_NAME", "value": request.subdomain},
        {"name": "POD_NUMS", "value": str(request.plan.group(NODE).count)},
        {"name": "POD_PORT", "value": str(port)},
    ]


def _plan_values(group: PodGroup) -> dict[str, Text]:
    """Returns a mapping from names to values, only for variables that have a `Text` value in the manifest."""
    found: dict[str, Text] = {}
    for entry in group.env:
        value = entry.pod_value if isinstance(entry.value, Text) and entry.value.needs_agent else entry.value
        if isinstance(value, Text):
            found[entry.name] = value
    return found


def _entrypoint(request: RenderRequest, container: dict[str, Any], names: PodNames) -> dict[str, Any]:
    """Returns the container with a shell script as its command. Adds the variables of the platform to the container.

    The shell script derives the variables of the plan from the variables of the platform. Then the script runs the
    command of the plan.
    """
    group = request.plan.group(NODE)
    environment = ShellEnvironment(names, request.job.network.cluster_domain)
    in_plan = _plan_values(group)
    ours = {row["name"]: row for row in container_env(group.env, names, None, None)}
    for row in container.get("env", []):
        text = row.get("value")
        given = Text((text,)) if isinstance(text, str) else None
        environment.add(row, in_plan.get(row["name"], given) if row == ours.get(row["name"]) else given)
    words = environment.words(_command(request, container, group, names))
    lines = environment.lines
    if environment.uses_env:
        lines = [*lines, "stepset_env=$(command -pv env)"]
    script = _SCRIPT.format(
        dir=RUN_DIR,
        lines="".join(f"{line}\n" for line in lines),
        command=" ".join(words),
        cleanup=environment.cleanup,
        max_restarts=request.job.restart.max_restarts,
    )
    probe = {"exec": {"command": ["/bin/sh", "-c", f"test -e {RUN_DIR}/holding"]}, "periodSeconds": 5}
    kept = {key: value for key, value in container.items() if key not in ("command", "args", "env")}
    return {
        "name": kept.pop("name"),
        **without_empty(image=kept.pop("image", None)),
        "command": ["/bin/sh", "-c", script],
        # The variables of the platform are last, because Kubernetes does not replace references to later variables.
        # Therefore a reference such as `$(POD_NAME)` in the job stays unchanged, as in all other targets.
        "env": [*environment.rows, *_platform_env(request)],
        **kept,
        "readinessProbe": probe,
    }


def _command(request: RenderRequest, container: Mapping[str, Any], group: PodGroup, names: PodNames) -> list[Text]:
    """Returns the command and the arguments of the container. The placeholders of the plan are not replaced.

    If the job's `pod_template` replaces the command or the arguments, the result contains the command or the arguments
    of `pod_template`.
    """
    in_manifest = InManifest(names)
    words: list[Text] = []
    for field, before, own in (
        ("command", agent_command(request, group), group.command),
        ("args", (), group.args),
    ):
        planned = [*texts(before), *own]
        given = container.get(field, [])
        words += planned if given == [resolve(word, in_manifest) for word in planned] else texts(map(str, given))
    return words


def problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """Yields one line for each feature of a job that a StatefulSet does not support."""
    yield from one_group(job, plan, "statefulset")
    yield from restarts_after_any_failure(job, "statefulset")
    for field, given in (("deadline", job.deadline), ("ttl", job.ttl)):
        if given is not None:
            yield f"{field}: a StatefulSet has none; leave it out, or use another target"
    if "activeDeadlineSeconds" in pod_spec(job.pod_template):
        yield "pod_template.activeDeadlineSeconds: a StatefulSet has none; leave it out, or use another target"
    for place, row in beside_node(job.pod_template):
        if row.get("restartPolicy") == NEVER:
            yield (
                f"{place}.restartPolicy: a StatefulSet restarts every container that ends; leave it out, or use"
                " another target"
            )
    container = node_container(job.pod_template)
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        if container.get(probe):
            yield (
                f"pod_template.containers.{NODE}.{probe}: a pod of a StatefulSet is Ready when its rank has ended, and"
                " then only waits; leave it out, or use another target"
            )


def name_budget(plan: LaunchPlan) -> int:
    """Returns the maximum length of a run's name, which is also a part of the value of a label."""
    return min(LABEL_LIMIT - _REVISION_SUFFIX, indexed_name_budget(plan))


SPEC = TargetSpec(
    render=render,
    problems=problems,
    name_budget=name_budget,
    max_pods=None,
    reserved_env=re.compile(f"POD_NAME|POD_NAMESPACE|POD_NUMS|POD_PORT|SVC_NAME|{PREFIX}.*"),
    own_fields=(),
    manifest_fields={r"spec\.serviceName\b": "network.subdomain"},
)
