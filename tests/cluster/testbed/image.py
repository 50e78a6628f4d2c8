"""The cluster's two container images, made from files of the machine and packed as one OCI archive.

There is no registry. `pause` holds a pod's namespaces; `host` is an empty tree with files of the machine's /etc (users,
loader cache, alternatives, certificates), into which a pod mounts the machine's /usr and Python read-only
(`pod.template`).
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

from .build import binary
from .layout import HOST_IMAGE, PAUSE_IMAGE, STATE

DIRECTORIES = (
    "usr", "tmp", "etc", "root", "home", "home/trainer", "proc", "sys", "dev", "run", "run/sshd", "var", "var/tmp",
    "opt", "srv", "mnt",
)  # fmt: skip
# On a merged-/usr system these are symlinks; on others `pod.template` mounts them.
USR_LINKS = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")
FROM_HOST = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "services", "protocols")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSWD = """root:x:0:0:root:/root:/bin/sh
sshd:x:100:65534::/run/sshd:/usr/sbin/nologin
trainer:x:1000:1000::/home/trainer:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
GROUP = "root:x:0:\ntrainer:x:1000:\nnogroup:x:65534:\n"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def build() -> Path:
    """Writes both images to one archive for `ctr images import`, and returns its path."""
    blobs: dict[str, bytes] = {}
    manifests = [add_image(PAUSE_IMAGE, _pause_layer(), blobs, ["/pause"]), add_image(HOST_IMAGE, host_layer(), blobs)]
    archive = STATE / "images.tar"
    write_archive(archive, manifests, blobs)
    return archive


def write_archive(archive: Path, manifests: list[dict[str, object]], blobs: dict[str, bytes]) -> None:
    """Writes images that `add_image` has added to `blobs` as one archive for `ctr images import`."""
    with tarfile.open(archive, "w") as tar:
        add_file(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        add_file(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())
        for digest, content in blobs.items():
            add_file(tar, f"blobs/sha256/{digest}", content)


def add_image(
    name: str,
    layer: bytes,
    blobs: dict[str, bytes],
    entrypoint: list[str] | None = None,
    path: str = PATH,
    user: str = "",
) -> dict[str, object]:
    """Adds an image of one layer to `blobs`; returns the descriptor of its manifest.

    Args:
        name: the image's name with its tag.
        layer: the layer, an uncompressed tar archive.
        blobs: contents by their SHA-256 digests; changed.
        entrypoint: the command of its containers; default: none.
        path: value of PATH.
        user: the user that its processes run as; empty: root.
    """
    diff_id = "sha256:" + hashlib.sha256(layer).hexdigest()
    configuration = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": entrypoint or [], "Env": [f"PATH={path}"], "User": user},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    }
    config = _blob("application/vnd.oci.image.config.v1+json", json.dumps(configuration).encode(), blobs)
    layers = [_blob("application/vnd.oci.image.layer.v1.tar", layer, blobs)]
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers}
    return {**_blob(kind, json.dumps(manifest).encode(), blobs), "annotations": {"io.containerd.image.name": name}}


def _blob(media_type: str, content: bytes, blobs: dict[str, bytes]) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _pause_layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        add_file(tar, "pause", binary("pause", "pause").read_bytes(), mode=0o755)
    return buffer.getvalue()


def host_layer() -> bytes:
    """Returns the layer into which a pod mounts the machine's programs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in DIRECTORIES:
            add_directory(tar, name, mode=0o1777 if name.endswith("tmp") else 0o755)
        for name in USR_LINKS:
            if Path("/", name).is_symlink():
                _add_link(tar, name, f"usr/{name}")
        _add_link(tar, "var/run", "/run")
        add_file(tar, "etc/passwd", PASSWD.encode())
        add_file(tar, "etc/group", GROUP.encode())
        add_file(tar, "etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
        for name in FROM_HOST:
            if Path("/etc", name).exists():
                tar.add(f"/etc/{name}", f"etc/{name}")
    return buffer.getvalue()


def add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Adds a file of root to an archive."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def add_directory(tar: tarfile.TarFile, name: str, mode: int) -> None:
    """Adds a directory of root to an archive."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)
