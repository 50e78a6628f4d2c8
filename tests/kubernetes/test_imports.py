"""What reading runs on a cluster imports: commands such as `stepset list` start as fast as they can."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import stepset.backends.kubernetes.backend
print(sorted({"pydantic", "kubernetes", "rich"} & set(sys.modules)))
"""


def test_a_backend_is_imported_without_the_jobs_models_and_without_the_kubernetes_package() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
