"""How pods reach each other by ssh, for MPI: server and client configuration, keys, the command of a node.

Tested on real clusters with Debian's OpenSSH 9.2, as root and as an ordinary user: any image with an ssh server works,
regardless of its own configuration.
"""

from __future__ import annotations

from typing import Any

from stepset.plan.model import PodGroup, SshKeys
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI
from stepset.targets.config_maps import SSH_PRIVATE_KEY, SSH_PUBLIC_KEY, config_map, secret_name
from stepset.targets.names import RUN_DIR, SSH_DIR
from stepset.targets.request import RenderRequest

SSH_KEYS_DIR = f"{RUN_DIR}/ssh"
"""Where the agent copies the private key: ssh refuses a key of its own user that others can read. The image determines
the user, so that no file mode of the Secret is right for all."""

PRIVATE_KEY = "id_rsa"
SSHD_CONFIG = "sshd_config"
SSH_CONFIG = "ssh_config"
SECRET_VOLUME = "mpi-ssh-auth"
CONFIG_VOLUME = "stepset-ssh"
_SSH_PORT = "ssh"

# As root, sshd needs /run/sshd, which images lack; a volume would have the wrong mode.
_PREPARE = "mkdir -p /run/sshd 2>/dev/null"


def config_name(request: RenderRequest) -> str:
    """Name of the ConfigMap with both ssh configurations."""
    return f"{request.run}-ssh-config"


def key_path(ssh: SshKeys, agent: bool) -> str:
    """The private key: with the agent its copy, which has the right mode, else the mounted Secret."""
    return f"{SSH_KEYS_DIR}/{PRIVATE_KEY}" if agent else f"{ssh.path}/{PRIVATE_KEY}"


def ssh_config_map(request: RenderRequest, ssh: SshKeys) -> dict[str, Any]:
    """The ConfigMap with the configurations of the ssh servers and of the ssh client."""
    port = request.plan.ports[_SSH_PORT]
    key = key_path(ssh, any(group.agent for group in request.plan.groups if group.name in ssh.groups))
    server = (
        f"Port {port}",
        "PidFile none",
        f"HostKey {key}",
        f"AuthorizedKeysFile {ssh.path}/authorized_keys",
        "StrictModes no",  # sshd rejects the modes of a Secret's volume
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "UseDNS no",
    )
    client = (
        "Host *",
        f"  Port {port}",
        f"  IdentityFile {key}",
        "  StrictHostKeyChecking no",  # the host keys are as new as the run
        "  UserKnownHostsFile /dev/null",
        "  LogLevel ERROR",
    )
    files = {SSHD_CONFIG: server, SSH_CONFIG: client}
    return config_map(request, config_name(request), data={k: "\n".join(v) + "\n" for k, v in files.items()})


def volumes(request: RenderRequest, group: PodGroup, *, secret: bool = True) -> tuple[list[Any], list[Any]]:
    """(volumes, mounts) of a pod that takes part in ssh; empty for others. `secret`: also mount the keys."""
    ssh = request.plan.ssh
    if ssh is None or group.name not in ssh.groups:
        return [], []
    config = {"name": CONFIG_VOLUME, "configMap": {"name": config_name(request)}}
    mounts = [
        {"name": CONFIG_VOLUME, "mountPath": SSH_DIR},
        # The only place that the client reads without options for every user and image.
        {"name": CONFIG_VOLUME, "mountPath": "/etc/ssh/ssh_config", "subPath": SSH_CONFIG},
    ]
    if not secret:
        return [config], mounts
    # File modes as in Kubeflow Trainer v2.3.0.
    items = [
        {"key": SSH_PRIVATE_KEY, "path": PRIVATE_KEY, "mode": 0o640},
        {"key": SSH_PUBLIC_KEY, "path": f"{PRIVATE_KEY}.pub", "mode": 0o644},
        {"key": SSH_PUBLIC_KEY, "path": "authorized_keys", "mode": 0o644},
    ]
    source = {"secretName": secret_name(request), "items": items, "defaultMode": 0o400}
    keys = {"name": SECRET_VOLUME, "secret": source}
    return [keys, config], [{"name": SECRET_VOLUME, "mountPath": ssh.path}, *mounts]


def server_command() -> list[str]:
    """A node's command: an ssh server in the foreground."""
    return ["/bin/sh", "-c", f"{_PREPARE}; exec /usr/sbin/sshd -De -f {SSH_DIR}/{SSHD_CONFIG}"]


def server_prefix(request: RenderRequest, group: PodGroup) -> list[str]:
    """Prefix of a command that needs an ssh server beside it; usually empty.

    A launcher that is also a node needs one under Hydra, which reaches even its own node by ssh: in the same container,
    because ranks must run there. Open MPI starts its own node's ranks itself.
    """
    if not uses_hydra(request.job) or group.serves_ssh or not group.ports:
        return []
    script = f'{_PREPARE}; /usr/sbin/sshd -e -f {SSH_DIR}/{SSHD_CONFIG} && exec "$@"'
    return ["/bin/sh", "-c", script, "sshd"]


def uses_hydra(job: TrainingJob) -> bool:
    """Whether Hydra starts the ranks, as for MPICH and Intel MPI."""
    return isinstance(job.framework, MPI) and job.framework.implementation != "openmpi"


def server_probe(request: RenderRequest) -> dict[str, Any]:
    """`startupProbe` of a node: it is ready once its server answers.

    Not a readiness probe: each connection without data leaves a line in the server's log.
    """
    port = request.plan.ports[_SSH_PORT]
    return {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": request.job.network.peer_timeout}
