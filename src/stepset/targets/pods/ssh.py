"""Renders the parts of an MPI run that enable ssh connections between the pods.

These parts are the configuration of the ssh server, the configuration of the ssh client, the keys, and the command of a
node. The image must contain an ssh server, but the ssh configuration of the image is not used. This was tested on
clusters with Debian's OpenSSH 9.2, as root and as another user.
"""

from __future__ import annotations

from typing import Any

from stepset.frameworks.kinds.mpi import MASTER_VARIABLES
from stepset.plan.model import PodGroup, SshKeys
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI
from stepset.spec.template import node_container, node_env_names
from stepset.targets.names import (
    CONTAINER,
    RUN_DIR,
    SSH_DIR,
    SSH_KNOWN_HOSTS,
    SSH_PRIVATE_KEY,
    SSH_PUBLIC_KEY,
    PodNames,
    ssh_config_map,
    ssh_secret,
)
from stepset.targets.pods.env import container_env, known_values
from stepset.targets.pods.overlay import overlay_of
from stepset.targets.pods.shell import is_shell_name
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.request import RenderRequest

SSH_KEYS_DIR = f"{RUN_DIR}/ssh"
"""The directory with the agent's copy of the private key.

ssh rejects a private key that other users can read. The files in a Secret's volume belong to root, but the image can
run as another user. Therefore the agent copies the key.
"""

PRIVATE_KEY = "id_rsa"
PUBLIC_KEY = f"{PRIVATE_KEY}.pub"
KNOWN_HOSTS = "known_hosts"
"""The file with the host key. All ssh servers of a run have the same host key, which is the private key of the run."""
SSHD_CONFIG = "sshd_config"
SSH_CONFIG = "ssh_config"
SECRET_VOLUME = "mpi-ssh-auth"
_ROOT_SSH = "/root/.ssh"
CONFIG_VOLUME = "stepset-ssh"
_SSH_PORT = "ssh"
_ANY_FIELD = "metadata.name"
"""A placeholder for the pod's fields with its index and its restarts, which are unknown before the pod exists."""

# If sshd runs as root, the directory /run/sshd must exist. Images do not contain this directory. It cannot be a volume,
# because the file mode of a volume would be wrong.
_PREPARE = "mkdir -p /run/sshd 2>/dev/null"


def key_path(ssh: SshKeys, agent: bool) -> str:
    """Returns the path of the private key in a pod.

    If the pod has an agent, this is the path of the agent's copy, which has the required file mode. Otherwise, this is
    the path of the file in the Secret's volume.
    """
    return f"{SSH_KEYS_DIR}/{PRIVATE_KEY}" if agent else f"{ssh.path}/{PRIVATE_KEY}"


def agent_files(ssh: SshKeys) -> list[dict[str, str]]:
    """Returns the files that the agent copies: the private key and the known_hosts file."""
    return [
        {"source": f"{ssh.path}/{PRIVATE_KEY}", "path": key_path(ssh, agent=True), "mode": "0600"},
        {"source": f"{ssh.path}/{PUBLIC_KEY}", "path": f"{SSH_KEYS_DIR}/{KNOWN_HOSTS}", "mode": "0600", "prefix": "* "},
    ]


def config_files(request: RenderRequest, ssh: SshKeys, names: PodNames, *, own_secret: bool) -> dict[str, str]:
    """Returns the configurations of the ssh servers and of the ssh client, by the names of their files.

    If `own_secret` is true, stepset creates the Secret with the keys. The Secret of Kubeflow Trainer has no known_hosts
    file. In this case, only an agent can create the file.
    """
    port = request.plan.ports[_SSH_PORT]
    agent = _has_agent(request, ssh)
    key = key_path(ssh, agent)
    server = (
        f"Port {port}",
        "PidFile none",
        f"HostKey {key}",
        f"AuthorizedKeysFile {ssh.path}/authorized_keys",
        "StrictModes no",  # sshd rejects the modes of a Secret's volume
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "UseDNS no",
        *_session_env(request, names),
    )
    known_hosts = f"{SSH_KEYS_DIR if agent else ssh.path}/{KNOWN_HOSTS}" if agent or own_secret else "/dev/null"
    client = (
        "Host *",
        f"  Port {port}",
        f"  IdentityFile {key}",
        f"  StrictHostKeyChecking {'yes' if agent or own_secret else 'no'}",
        f"  UserKnownHostsFile {known_hosts}",
        "  LogLevel ERROR",
    )
    files = {SSHD_CONFIG: server, SSH_CONFIG: client}
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def used_by_root(request: RenderRequest, ssh: SshKeys) -> bool:
    """Returns whether root itself uses the mounted keys, because no agent copies them.

    ssh and sshd refuse a private key of their own user that the group can read. As in kubeflow/mpi-operator v0.8.0
    (pkg/controller/mpi_job_controller.go, setupSSHOnPod), the path of the mounted keys determines this.
    """
    return ssh.path == _ROOT_SSH and not _has_agent(request, ssh)


def _has_agent(request: RenderRequest, ssh: SshKeys) -> bool:
    return any(group.agent for group in request.plan.groups if group.name in ssh.groups)


def _session_env(request: RenderRequest, names: PodNames) -> list[str]:
    """Returns the line of the server configuration that sets MASTER_ADDR and MASTER_PORT in ssh sessions.

    The line is necessary because an ssh session does not have the variables of the container. sshd does not replace
    references such as `$(NAME)`, so the line contains the final values. The line does not contain a variable whose
    value is unknown before the pod of the launcher exists. If a value contains characters that the configuration does
    not allow, the result is empty.
    """
    launcher = request.plan.group(request.plan.success.group)
    container = {"name": CONTAINER, "env": container_env(launcher.env, names, _ANY_FIELD, _ANY_FIELD)}
    merged = merge({"spec": {"containers": [container]}}, overlay_of(request.job, launcher))
    values = known_values(node_container(merged).get("env") or ())
    words = [f"{name}={values[name]}" for name in MASTER_VARIABLES if name in values]
    return [f"SetEnv {' '.join(words)}"] if words and not any(set(word) & set(" \"'\n") for word in words) else []


def volumes(request: RenderRequest, group: PodGroup, *, secret: bool) -> tuple[list[Any], list[Any]]:
    """Returns the volumes and the volume mounts that a pod needs for ssh. For groups without ssh, both lists are empty.

    Args:
        secret: whether to include the Secret with the keys.
    """
    ssh = request.plan.ssh
    if ssh is None or group.name not in ssh.groups:
        return [], []
    config = {"name": CONFIG_VOLUME, "configMap": {"name": ssh_config_map(request.run)}}
    mounts = [
        {"name": CONFIG_VOLUME, "mountPath": SSH_DIR},
        # The ssh client reads this file for every user and in every image, even if the command has no option `-F`.
        {"name": CONFIG_VOLUME, "mountPath": "/etc/ssh/ssh_config", "subPath": SSH_CONFIG},
    ]
    if not secret:
        return [config], mounts
    # The other file modes are those of Kubeflow Trainer v2.3.0.
    items = [
        {"key": SSH_PRIVATE_KEY, "path": PRIVATE_KEY, "mode": 0o600 if used_by_root(request, ssh) else 0o640},
        {"key": SSH_PUBLIC_KEY, "path": PUBLIC_KEY, "mode": 0o644},
        {"key": SSH_PUBLIC_KEY, "path": "authorized_keys", "mode": 0o644},
    ]
    if not _has_agent(request, ssh):
        items.append({"key": SSH_KNOWN_HOSTS, "path": KNOWN_HOSTS, "mode": 0o644})
    source = {"secretName": ssh_secret(request.run), "items": items, "defaultMode": 0o400}
    keys = {"name": SECRET_VOLUME, "secret": source}
    return [keys, config], [{"name": SECRET_VOLUME, "mountPath": ssh.path}, *mounts]


def server_command() -> list[str]:
    """Returns the command of a node. The command runs an ssh server in the foreground."""
    return ["/bin/sh", "-c", f"{_PREPARE}; exec /usr/sbin/sshd -De -f {SSH_DIR}/{SSHD_CONFIG}"]


def server_prefix(request: RenderRequest, group: PodGroup) -> list[str]:
    """Returns the prefix of a command. The prefix starts an ssh server in the background.

    Only a launcher that is also a node and uses Hydra needs the ssh server. In this case, Hydra connects by ssh to the
    pod in which it runs. Open MPI starts the ranks in its own pod without ssh.
    """
    if not uses_hydra(request.job) or group.serves_ssh or not group.ports:
        return []
    script = f'{_PREPARE}; /usr/sbin/sshd -e -f {SSH_DIR}/{SSHD_CONFIG} && exec "$@"'
    return ["/bin/sh", "-c", script, "sshd", *_through_env(request, group)]


def _through_env(request: RenderRequest, group: PodGroup) -> list[str]:
    """Returns the program `env` and its arguments. `env` sets the variables that a shell does not pass to the command.

    For example, dash does not pass the variable `my.var`. The assignments contain references `$(NAME)`. The kubelet or
    the agent replaces the references before the shell starts. Variables from `envFrom` are missing, because their
    names are unknown.
    """
    names = [*(entry.name for entry in group.env), *node_env_names(overlay_of(request.job, group))]
    words = [f"{name}=$({name})" for name in dict.fromkeys(names) if not is_shell_name(name)]
    return ["env", "--", *words] if words else []


def uses_hydra(job: TrainingJob) -> bool:
    """Returns whether Hydra starts the ranks. Hydra is the process manager of MPICH and Intel MPI."""
    return isinstance(job.framework, MPI) and job.framework.implementation != "openmpi"


def server_probe(request: RenderRequest) -> dict[str, Any]:
    """Returns the `startupProbe` of a node. The pod becomes ready when the ssh server accepts connections.

    A readiness probe would connect again and again, and the ssh server would write a line to the log each time.
    """
    port = request.plan.ports[_SSH_PORT]
    return {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": request.job.network.peer_timeout}
