"""How pods reach each other by ssh, for MPI: server and client configuration, keys, the command of a node.

Tested on real clusters with Debian's OpenSSH 9.2, as root and as an ordinary user: any image with an ssh server works,
regardless of its own configuration.
"""

from __future__ import annotations

from typing import Any

from stepset.frameworks.mpi import MASTER_VARIABLES
from stepset.plan.model import PodGroup, SshKeys
from stepset.plan.values import Text, resolve
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI
from stepset.spec.template import node_env_names
from stepset.targets.config_maps import SSH_PRIVATE_KEY, SSH_PUBLIC_KEY, config_map, secret_name
from stepset.targets.names import RUN_DIR, SSH_DIR, InManifest, PodNames
from stepset.targets.pods.overlay import overlay_of
from stepset.targets.pods.shell import is_shell_name
from stepset.targets.request import RenderRequest

SSH_KEYS_DIR = f"{RUN_DIR}/ssh"
"""The directory of the agent's copy of the private key. ssh rejects a key that other users can read, and the image
determines the user, so that no file mode of the Secret suits all images."""

PRIVATE_KEY = "id_rsa"
PUBLIC_KEY = f"{PRIVATE_KEY}.pub"
KNOWN_HOSTS = f"{SSH_KEYS_DIR}/known_hosts"
"""The host key of all pods of the run, written by the agent. The servers and the clients of a run have the same key."""
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
    """Returns the path of the private key: of the agent's copy, which has the required mode, else in the Secret."""
    return f"{SSH_KEYS_DIR}/{PRIVATE_KEY}" if agent else f"{ssh.path}/{PRIVATE_KEY}"


def agent_files(ssh: SshKeys) -> list[dict[str, str]]:
    """The files that the agent copies: the private key, and the known hosts."""
    return [
        {"source": f"{ssh.path}/{PRIVATE_KEY}", "path": key_path(ssh, agent=True), "mode": "0600"},
        {"source": f"{ssh.path}/{PUBLIC_KEY}", "path": KNOWN_HOSTS, "mode": "0600", "prefix": "* "},
    ]


def ssh_config_map(request: RenderRequest, ssh: SshKeys, names: PodNames) -> dict[str, Any]:
    """The ConfigMap with the configurations of the ssh servers and of the ssh client."""
    port = request.plan.ports[_SSH_PORT]
    agent = any(group.agent for group in request.plan.groups if group.name in ssh.groups)
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
    client = (
        "Host *",
        f"  Port {port}",
        f"  IdentityFile {key}",
        # Without the agent, no file has the format of known hosts: Trainer's Secret contains the public key only.
        f"  StrictHostKeyChecking {'yes' if agent else 'no'}",
        f"  UserKnownHostsFile {KNOWN_HOSTS if agent else '/dev/null'}",
        "  LogLevel ERROR",
    )
    files = {SSHD_CONFIG: server, SSH_CONFIG: client}
    return config_map(request, config_name(request), data={k: "\n".join(v) + "\n" for k, v in files.items()})


def _session_env(request: RenderRequest, names: PodNames) -> list[str]:
    """Returns the line that sets MASTER_ADDR and MASTER_PORT in the sessions of a server.

    A session has none of the container's variables. Values that the configuration cannot contain are left out.
    """
    launcher = request.plan.group(request.plan.success.group)
    entries = {entry.name: entry.value for entry in launcher.env if entry.name in MASTER_VARIABLES}
    in_manifest = InManifest(names)
    words = [f"{name}={resolve(value, in_manifest)}" for name, value in entries.items() if isinstance(value, Text)]
    return [f"SetEnv {' '.join(words)}"] if words and not any(set(word) & set(" \"'\n") for word in words) else []


def volumes(request: RenderRequest, group: PodGroup, *, secret: bool = True) -> tuple[list[Any], list[Any]]:
    """(volumes, mounts) of a pod that takes part in ssh; empty for others. `secret`: also mount the keys."""
    ssh = request.plan.ssh
    if ssh is None or group.name not in ssh.groups:
        return [], []
    config = {"name": CONFIG_VOLUME, "configMap": {"name": config_name(request)}}
    mounts = [
        {"name": CONFIG_VOLUME, "mountPath": SSH_DIR},
        # The only file that the client reads without options for every user and image.
        {"name": CONFIG_VOLUME, "mountPath": "/etc/ssh/ssh_config", "subPath": SSH_CONFIG},
    ]
    if not secret:
        return [config], mounts
    # File modes as in Kubeflow Trainer v2.3.0.
    items = [
        {"key": SSH_PRIVATE_KEY, "path": PRIVATE_KEY, "mode": 0o640},
        {"key": SSH_PUBLIC_KEY, "path": PUBLIC_KEY, "mode": 0o644},
        {"key": SSH_PUBLIC_KEY, "path": "authorized_keys", "mode": 0o644},
    ]
    source = {"secretName": secret_name(request), "items": items, "defaultMode": 0o400}
    keys = {"name": SECRET_VOLUME, "secret": source}
    return [keys, config], [{"name": SECRET_VOLUME, "mountPath": ssh.path}, *mounts]


def server_command() -> list[str]:
    """A node's command: an ssh server in the foreground."""
    return ["/bin/sh", "-c", f"{_PREPARE}; exec /usr/sbin/sshd -De -f {SSH_DIR}/{SSHD_CONFIG}"]


def server_prefix(request: RenderRequest, group: PodGroup) -> list[str]:
    """Returns the prefix that starts an ssh server before a command; usually empty.

    Hydra uses ssh even on its own node, so that a launcher that is also a node needs a server in its container, where
    the ranks run. Open MPI starts the ranks of its own node without ssh.
    """
    if not uses_hydra(request.job) or group.serves_ssh or not group.ports:
        return []
    script = f'{_PREPARE}; /usr/sbin/sshd -e -f {SSH_DIR}/{SSHD_CONFIG} && exec "$@"'
    return ["/bin/sh", "-c", script, "sshd", *_through_env(request, group)]


def _through_env(request: RenderRequest, group: PodGroup) -> list[str]:
    """Returns the command `env` with the variables that a shell does not pass on, such as `my.var` under dash.

    The kubelet, or the agent, replaces `$(NAME)` by the value before the shell starts. Names in a ConfigMap or Secret
    of `envFrom` are not known here.
    """
    names = [*(entry.name for entry in group.env), *node_env_names(overlay_of(request.job, group))]
    words = [f"{name}=$({name})" for name in dict.fromkeys(names) if not is_shell_name(name)]
    return ["env", "--", *words] if words else []


def uses_hydra(job: TrainingJob) -> bool:
    """Whether Hydra starts the ranks, as for MPICH and Intel MPI."""
    return isinstance(job.framework, MPI) and job.framework.implementation != "openmpi"


def server_probe(request: RenderRequest) -> dict[str, Any]:
    """Returns the `startupProbe` of a node, which is ready once its server answers.

    Not a readiness probe: each connection without data leaves a line in the server's log.
    """
    port = request.plan.ports[_SSH_PORT]
    return {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": request.job.network.peer_timeout}
