"""Creates the images of KFP's and Argo's static programs, and the image of the tests' steps."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from tests.cluster.testbed import image
from tests.cluster.testbed.pod import Mount, host_programs, template

from .layout import ARGOEXEC_IMAGE, DRIVER_IMAGE, LAUNCHER_IMAGE, ROOT, STEP_IMAGE, STEPS_ENVIRONMENT

_DIRECTORIES = ("bin", "tmp", "etc", "etc/ssl", "etc/ssl/certs", "var", "var/run")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_USERS = b"root:x:0:0::/:/x\nargo:x:8737:8737::/:/x\n"
_PROGRAMS = {
    # Each value contains the program of an image, and the user of the published image.
    DRIVER_IMAGE: ("driver", "65532:65532"),
    LAUNCHER_IMAGE: ("launcher-v2", "65532:65532"),
    ARGOEXEC_IMAGE: ("argoexec", "8737"),
}


def write(programs: Path, archive: Path) -> None:
    """Writes all images of the backend to one archive for `ctr images import`.

    Args:
        programs: the directory of the Go programs.
        archive: the file to write.
    """
    blobs: dict[str, bytes] = {}
    manifests = [
        image.add_image(name, _layer(programs / program), blobs, [f"/bin/{program}"], "/bin:/usr/bin", user)
        for name, (program, user) in _PROGRAMS.items()
    ]
    path = f"{STEPS_ENVIRONMENT}/bin:{image.PATH}"
    manifests.append(image.add_image(STEP_IMAGE, image.host_layer(), blobs, path=path))
    image.write_archive(archive, manifests, blobs)


def pod_patch() -> dict[str, Any]:
    """Returns a patch for all pods of a Workflow. The patch mounts the files of this machine that the steps need."""
    mounts = [*host_programs(), Mount(str(ROOT / "src")), Mount(str(ROOT / "components"))]
    spec: dict[str, Any] = template("main", mounts)["spec"]
    return spec


def _layer(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in _DIRECTORIES:
            image.add_directory(tar, name, mode=0o1777 if name == "tmp" else 0o755)
        image.add_file(tar, f"bin/{program.name}", program.read_bytes(), mode=0o755)
        image.add_file(tar, "etc/passwd", _USERS)
        if _CERTIFICATES.is_file():
            image.add_file(tar, str(_CERTIFICATES).lstrip("/"), _CERTIFICATES.read_bytes())
    return buffer.getvalue()
