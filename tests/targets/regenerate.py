"""Writes the golden files and deploy/rbac: `make golden`."""

from __future__ import annotations

from pathlib import Path

from stepset.targets.dump import to_yaml
from stepset.targets.rbac import rbac
from tests.targets.golden import EXAMPLES, GOLDEN, golden_path, golden_text, pairs, render_example


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    wanted = {golden_path(name, target): (name, target) for name, target in pairs()}
    for stale in set(GOLDEN.iterdir()) - set(wanted):
        stale.unlink()
        print(f"removed {stale.name}")
    for path, (name, target) in wanted.items():
        _write(path, golden_text(render_example(name, target)))
    for backend in ("airflow", "kfp", "cli"):
        _write(EXAMPLES.parent / "deploy" / "rbac" / f"{backend}.yaml", to_yaml(rbac(backend)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
