"""The imports of the Kubernetes backend: few, so that commands such as `stepset list` start quickly."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import stepset.backends.kubernetes.backend
print(sorted({"pydantic", "kubernetes", "rich"} & set(sys.modules)))
"""


def test_the_backend_imports_neither_pydantic_nor_kubernetes_nor_rich() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
