"""A user who validates jobs with a real API server."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from stepset.cli import main

JOB = {"name": "digits", "image": "registry.example/train:1", "script": "train.py", "num_nodes": 2}


@dataclass(frozen=True)
class Validator:
    """A user with a kubeconfig who validates jobs in the working directory."""

    directory: Path
    kubeconfig: Path
    namespace: str

    def validate(self, *flags: str, **job: Any) -> tuple[int, list[str]]:
        """Validates a job. Returns the exit code, the lines of stdout and the lines of stderr."""
        (self.directory / "train.py").write_text("print('training')\n")
        (self.directory / "job.yaml").write_text(yaml.safe_dump({**JOB, **job}))
        words = ["validate", "job.yaml", "--server", "--kubeconfig", str(self.kubeconfig)]
        words += [] if "--namespace" in flags else ["--namespace", self.namespace]
        out, err = io.BytesIO(), io.BytesIO()
        with redirect_stdout(io.TextIOWrapper(out)) as stdout, redirect_stderr(io.TextIOWrapper(err)) as stderr:
            code = main([*words, *flags])
            stdout.flush()
            stderr.flush()
        assert b"Traceback" not in err.getvalue()
        return code, (out.getvalue() + err.getvalue()).decode().splitlines()

    def refused(self, *flags: str, **job: Any) -> list[str]:
        """Validates a job that is refused. Returns the problems."""
        code, lines = self.validate(*flags, **job)
        assert code == 2, lines
        return [line.removeprefix("stepset: job.yaml: ") for line in lines]

    def with_user(self, user: dict[str, Any]) -> Validator:
        """Returns a validator with a kubeconfig for another user of the same server."""
        content = yaml.safe_load(self.kubeconfig.read_text())
        chosen = next(each for each in content["contexts"] if each["name"] == content["current-context"])
        content["users"] = [{"name": "other", "user": user}]
        chosen["context"]["user"] = "other"
        path = self.directory / "other.kubeconfig"
        path.write_text(yaml.safe_dump({**content, "contexts": [chosen]}))
        return replace(self, kubeconfig=path)
