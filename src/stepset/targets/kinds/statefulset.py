"""The statefulset target: a headless Service and a StatefulSet, for platforms that run nothing else.

Such a platform sets POD_NAME, SVC_NAME, POD_NUMS, POD_PORT and POD_NAMESPACE, from which each pod derives its rank and
the master's address. A StatefulSet always restarts its pods; a pod that has finished does not train again but waits: it
is Ready, which shows that its last termination is its verdict (docs/targets.md).
"""

from __future__ import annotations

from typing import Any

from stepset.plan.model import NODE, EnvEntry, PodGroup
from stepset.plan.values import Attempt, Text
from stepset.targets import gang
from stepset.targets.companions import companions
from stepset.targets.kinds.headless_service import headless_service
from stepset.targets.kinds.jobset import pod_templates
from stepset.targets.metadata import RUN, workload_metadata
from stepset.targets.names import RUN_DIR, SINGLE_GROUP_HOSTS, PodNames
from stepset.targets.optional_fields import given
from stepset.targets.pods import shell
from stepset.targets.pods.env import container_env
from stepset.targets.pods.template import AGENT_COMMAND, PodStyle, with_container
from stepset.targets.request import RenderRequest

_SCRIPT = """\
# Holds when this pod has its verdict: the termination before this start.
if [ -e {dir}/finished ]; then
  trap 'exit 0' TERM INT
  : > {dir}/holding
  while :; do sleep 3600 & wait "$!"; done
fi
attempt=$(cat {dir}/attempts 2>/dev/null || echo 0)
echo "$((attempt + 1))" > {dir}/attempts
{exports}
# The command; what stops this shell stops it too.
child= stopped=
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT
{command} &
child=$!
wait "$child"; code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
# Stopped from outside is no verdict; a failure is one when no restart is left.
if [ -z "$stopped" ] && {{ [ "$code" -eq 0 ] || [ "$attempt" -ge {max_restarts} ]; }}; then
  : > {dir}/finished
fi
exit "$code"
"""


def render(request: RenderRequest) -> list[dict[str, Any]]:
    """The manifests, in the order an apply needs."""
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
            # All at once: otherwise the first would wait for the rest forever.
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {RUN: request.run}},
            "template": template,
        },
    }
    return [*companions(request, names), headless_service(request), *gang.pod_groups(request, templates), workload]


def _platform_env(request: RenderRequest) -> list[dict[str, Any]]:
    """The platform's variables; some are the pod's own fields."""
    port = next(iter(request.plan.ports.values()), request.job.network.port)
    return [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "SVC_NAME", "value": request.subdomain},
        {"name": "POD_NUMS", "value": str(request.plan.group(NODE).count)},
        {"name": "POD_PORT", "value": str(port)},
    ]


def _derived(group: PodGroup) -> dict[str, EnvEntry]:
    """Variables that the pod derives, in their order, and those that refer to one of them."""
    found: dict[str, EnvEntry] = {}
    for entry in group.env:
        value = entry.value
        if not isinstance(value, Text) or value.known_in_pod:
            continue
        if shell.is_derived(value) or value.parts == (Attempt(),) or shell.refers_to(value, found):
            found[entry.name] = entry
    return found


def _entrypoint(request: RenderRequest, container: dict[str, Any], names: PodNames) -> dict[str, Any]:
    """The container with the platform's variables, and a shell around its command that derives the others."""
    group = request.plan.group(NODE)
    domain = request.job.network.cluster_domain
    derived, platform = _derived(group), _platform_env(request)
    rest = container_env((entry for entry in group.env if entry.name not in derived), names, None, None)
    known = {row["name"] for row in [*platform, *rest] if shell.is_shell_name(row["name"])}
    rows = []
    for name, entry in derived.items():
        assert isinstance(entry.value, Text)
        attempt = entry.value.parts == (Attempt(),)
        rows.append((name, '"${attempt}"' if attempt else shell.derive(entry.value, names, domain, known)))
        if shell.is_shell_name(name):
            known.add(name)
    command = [shell.derive(word, names, domain, known) for word in group.command]
    args = [shell.derive(word, names, domain, known) for word in group.args]
    lines, before = shell.exports(rows)
    agent = AGENT_COMMAND if group.agent is not None else ()
    script = _SCRIPT.format(
        dir=RUN_DIR,
        exports="\n".join(lines),
        command=" ".join([*before, *agent, *command, *args]),
        max_restarts=request.job.restart.max_restarts,
    )
    env = [row for row in container.get("env", []) if row["name"] not in derived]
    probe = {"exec": {"command": ["/bin/sh", "-c", f"test -e {RUN_DIR}/holding"]}, "periodSeconds": 5}
    kept = {key: value for key, value in container.items() if key not in ("command", "args", "env")}
    return {
        "name": kept.pop("name"),
        **given(image=kept.pop("image", None)),
        "command": ["/bin/sh", "-c", script],
        "env": [*platform, *env],
        **kept,
        "readinessProbe": probe,
    }
