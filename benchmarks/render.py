"""Compares the rendering of a JobSet with TorchX's dry run of a similar job.

The benchmark also measures how the time of rendering depends on the number of nodes.

Each measurement starts with the arguments of the job and ends with the Kubernetes objects. The code of the job is in
the image, because TorchX does not ship code. The time of stepset includes the validation of the job. stepset also
renders a second job. This job contains a script, which stepset reads and ships. TorchX is installed in a separate
environment, .venvs/torchx, because the requirements of TorchX and stepset conflict. Both environments use the same
Python interpreter.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import stepset
from benchmarks.paired import Row
from stepset.targets.dump import to_yaml

ROOT = Path(__file__).resolve().parent.parent
TORCHX = ROOT / ".venvs" / "torchx"
NODES = (1, 4, 16, 100, 10_000)
_VERSION = "torchx[kubernetes]==0.7.0"


def rows() -> list[Row]:
    """Returns the ratios for 4, 16 and 100 nodes, and the time of stepset for 1 to 10,000 nodes."""
    ours = _ours()
    theirs = _theirs((4, 16, 100))
    again = _ours()  # the mean of both measurements compensates for a change of the machine's speed
    ours = {n: tuple(map(statistics.mean, zip(ours[n], again[n], strict=True))) for n in NODES}
    result = []
    for nodes in (4, 16, 100):
        objects, text = theirs[nodes][0] / ours[nodes][0], theirs[nodes][1] / ours[nodes][1]
        result.append(
            Row(
                f"render of a JobSet, {nodes} nodes x 8 processes, against TorchX's dry run",
                f"{objects:.0f} x as fast ({1000 / ours[nodes][0]:,.0f} manifests a second);"
                f" with a script that is read and shipped {theirs[nodes][0] / ours[nodes][2]:.0f} x;"
                f" as YAML, with the agent in it, {text:.1f} x",
                ">= 10 x",
                objects >= 10,
            )
        )
    flat = ours[NODES[-1]][0] / ours[NODES[0]][0]
    figures = ", ".join(f"{n:,}: {ours[n][0]:.2f} ms" for n in NODES)
    result.append(Row("render of a JobSet, by nodes", f"{flat:.1f} x ({figures})", "flat in num_nodes", flat < 1.5))
    return result


def _ours(runs: int = 200) -> dict[int, tuple[float, ...]]:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "train.py").write_text("print('training')\n", encoding="utf-8")
        job = {
            "name": "digits",
            "args": ["--epochs", "3"],
            "procs_per_node": 8,
            "image": "train:1",
            "resources_per_node": {"cpu": 8, "memory": "16Gi"},
        }
        result = {}
        for nodes in NODES:
            medians = []
            for code, as_text in (("module", False), ("module", True), ("script", False)):
                program = {code: "train" if code == "module" else "train.py"}
                samples = []
                for _ in range(runs):
                    start = time.process_time()
                    manifests = stepset.render({**job, **program, "num_nodes": nodes}, base_dir=Path(directory))
                    if as_text:
                        to_yaml(manifests)
                    samples.append(time.process_time() - start)
                medians.append(statistics.median(samples) * 1000)
            result[nodes] = tuple(medians)
        return result


def _theirs(nodes: tuple[int, ...]) -> dict[int, tuple[float, float]]:
    python = TORCHX / "bin" / "python"
    if not python.exists():
        uv = shutil.which("uv") or str(ROOT / ".venvs" / "uv" / "bin" / "uv")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, TORCHX], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", python, _VERSION], check=True)
    script = Path(__file__).parent / "scripts" / "torchx_dryrun.py"
    done = subprocess.run([python, script, *map(str, nodes)], check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {int(n): (float(objects), float(text)) for n, objects, text in lines}
