"""The interfaces through which a user follows a run; each is a process whose output is collected in a `View`."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stepset.exit_code import ExitCode
from stepset.run_status import RunStatus
from tests.cluster.runs import STEPSET
from tests.contract import guard
from tests.contract.gates import ROOT
from tests.contract.outcome import Outcome, View, of_error, of_status
from tests.waiting import LIMIT, until

KFP_PYTHON = ROOT / ".venvs/kfp/bin/python"
_SITE = ROOT / "tests/contract/site"
_END = re.compile(
    r"run \S+ (?P<verb>succeeded|failed|was cancelled)\b(?: (?:in|after) [0-9.mhs ]+)?(?:: (?P<kind>\w+):)?"
)
"""The end of a run in the words of every interface (stepset.watch.present.sentences.end_sentence)."""
_LINE = re.compile(r"\[(rank \d+|node \d+|[a-z][-a-z0-9]*)\] (.*)", re.DOTALL)


def peak_memory_mb(pid: int) -> float:
    """Waits until a child process has ended; returns the maximum of its resident memory, read five times per second.

    The maximum of `wait4` contains the memory of the process that started it.
    """
    peak = 0.0
    with suppress(ChildProcessError):  # Popen.send_signal has waited for it
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            with suppress(OSError):
                rows = Path(f"/proc/{pid}/status").read_text().splitlines()
                peak = next((int(row.split()[1]) / 1024 for row in rows if row.startswith("VmHWM:")), peak)
            time.sleep(0.2)
    return peak


@dataclass(frozen=True)
class RunParameters:
    """A run to start and follow through an interface.

    Args:
        job: the job file's mapping.
        name: the run's name, for interfaces whose caller chooses it.
        directory: the directory of the interface's files; the job's paths are relative to it.
        kubeconfig: the gate's kubeconfig.
        direct: a kubeconfig that bypasses the gate, for requests of another process.
        namespace: the run's namespace.
        target: the run's target.
        pause: seconds to sleep after each line that the interface shows.
    """

    job: Mapping[str, Any]
    name: str
    directory: Path
    kubeconfig: Path
    direct: Path
    namespace: str
    target: str = "jobset"
    pause: float = 0.0

    def environment(self) -> dict[str, str]:
        """The variables of the interface's process."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STEPSET_", "AIRFLOW_"))}
        return {
            **kept,
            "KUBECONFIG": str(self.kubeconfig),
            "PYTHONPATH": str(_SITE),
            "PYTHONUNBUFFERED": "1",
            guard.VARIABLE: str(self.directory / "guard"),
        }

    def blocked(self) -> list[str]:
        """The callbacks that blocked the event loop of the interface's process."""
        path = self.directory / "guard"
        return path.read_text().splitlines() if path.exists() else []


class Process:
    """A process whose stdout and stderr are read line by line.

    Args:
        parameters: the run.
        command: the command line.
        view: gets the outcome and the memory used.
        out, err: called with each line of stdout and stderr.
        ended: returns the outcome for an exit code; called after the end of both outputs.
    """

    def __init__(
        self,
        parameters: RunParameters,
        command: list[str],
        view: View,
        out: Callable[[str], None],
        err: Callable[[str], None],
        ended: Callable[[int], Outcome],
    ) -> None:
        self._view, self._pause = view, parameters.pause
        self._process = subprocess.Popen(
            command,
            cwd=parameters.directory if command[0] == str(STEPSET) else ROOT,
            env=parameters.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, out), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, err), daemon=True),
        ]
        for reader in readers:
            reader.start()

        def end() -> None:
            view.memory_mb = peak_memory_mb(self._process.pid)
            self._process.wait()
            for reader in readers:
                reader.join()
            view.end(ended(self._process.returncode))

        self._end = threading.Thread(target=end, daemon=True)
        self._end.start()

    def _read(self, file: IO[bytes], take: Callable[[str], None]) -> None:
        # Very long lines are shortened, so that they do not fill this process's memory.
        with file:
            for text in short_lines(file):
                take(text)
                if self._pause and text.startswith("["):
                    time.sleep(self._pause)

    def close(self) -> None:
        """Kills the process if it has not ended."""
        with suppress(ProcessLookupError):
            if self._end.is_alive():
                os.kill(self._process.pid, signal.SIGKILL)
        self._end.join(30)


def short_lines(file: IO[bytes], limit: int = 100_000) -> Iterator[str]:
    """The lines of a file, each shortened to `limit` bytes."""
    while line := file.readline(limit):
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(limit)):
            pass
        yield line.decode("utf-8", "replace").rstrip("\n")


@contextmanager
def synchronous_call(parameters: RunParameters) -> Iterator[View]:
    """`stepset.run` in a new process."""
    view, status = View(), dict[str, Any]()
    reported: set[str] = set()

    def out(text: str) -> None:
        found = json.loads(text)
        if "line" in found:
            view.line(*found["line"])
        elif "status" in found:
            for sentence in sentences(found["status"]):
                if sentence not in reported:
                    view.message(sentence)
            reported.clear()
            reported.update(sentences(found["status"]))
        elif "end" in found:
            status.update(found["end"])
        else:
            status["error"] = found["error"]

    def ended(code: int) -> Outcome:
        if "phase" in status:
            return of_status(status, code)
        return of_error(str(status.get("error", f"exit code {code}")), code)

    options = {"kubeconfig": str(parameters.kubeconfig), "namespace": parameters.namespace, "target": parameters.target}
    path = _request(
        parameters, {"job": parameters.job, "name": parameters.name, "options": options, "pause": parameters.pause}
    )
    command = [sys.executable, "-m", "tests.contract.drivers.call", str(path)]
    with _closing(Process(parameters, command, view, out, view.noise.append, ended)):
        yield view


@contextmanager
def command_line(parameters: RunParameters) -> Iterator[View]:
    """`stepset run job.yaml --backend kubernetes`."""
    view, status = View(), list[str]()

    def err(text: str) -> None:
        if match := _LINE.match(text):
            view.line(match[1], match[2])
        else:
            view.message(text)

    def ended(code: int) -> Outcome:
        final = json.loads("\n".join(status)) if status else {}
        return of_status(final, code) if final else of_error(view.messages[-1] if view.messages else "", code)

    (parameters.directory / "job.yaml").write_text(json.dumps(parameters.job))  # JSON is YAML
    command = [str(STEPSET), "run", "job.yaml", "--backend", "kubernetes", "--namespace", parameters.namespace]
    command += ["--kubeconfig", str(parameters.kubeconfig), "--target", parameters.target, "-o", "json"]
    with _closing(Process(parameters, command, view, status.append, err, ended)):
        yield view


@contextmanager
def kfp_step(parameters: RunParameters) -> Iterator[View]:
    """The body of the KFP component `distributed_train`."""
    view = View()

    def out(text: str) -> None:
        if match := _LINE.match(text):
            view.line(match[1], match[2])
        else:
            view.message(text.removeprefix("stepset: "))

    def ended(code: int) -> Outcome:
        ends = [match for each in view.messages if (match := _END.match(each))]
        result = parameters.directory / "result"
        if ends:
            found = json.loads(result.read_text()) if result.exists() else None
            kind = "Cancelled" if ends[-1]["verb"] == "was cancelled" else ends[-1]["kind"] or ""
            phase = "Succeeded" if ends[-1]["verb"] == "succeeded" else "Lost" if kind == "Lost" else "Failed"
            return Outcome(phase, kind, found, code)
        return of_error(view.messages[-1] if view.messages else "", code)

    options = {"namespace": parameters.namespace, "target": parameters.target}
    path = _request(parameters, {"job": parameters.job, "options": options})
    command = [str(KFP_PYTHON), "-m", "tests.contract.drivers.step", str(path)]
    with _closing(Process(parameters, command, view, out, view.noise.append, ended)):
        yield view


class Triggerers:
    """Starts triggerers, which are forked from one process that has imported Airflow.

    Args:
        directory: the directory of that process's log.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._parent: subprocess.Popen[str] | None = None

    def start(self, request: Mapping[str, Any]) -> None:
        """Starts a triggerer for a request."""
        with self._lock:
            if self._parent is None:
                command = [sys.executable, "-m", "tests.contract.drivers.triggerer"]
                environment = {**os.environ, "PYTHONPATH": str(_SITE), guard.VARIABLE: str(self._directory / "guard")}
                for name in [each for each in environment if each.startswith("AIRFLOW_")]:
                    del environment[name]
                pipe = subprocess.PIPE
                with (self._directory / "triggerer.log").open("wb") as error:
                    self._parent = subprocess.Popen(
                        command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=error, text=True
                    )
                assert self._parent.stdout is not None
                ready = self._parent.stdout.readline
                while (line := ready()) and line != "ready\n":
                    pass
                assert line, (self._directory / "triggerer.log").read_text()[-3000:]
            assert self._parent.stdin is not None
            self._parent.stdin.write(json.dumps(request) + "\n")
            self._parent.stdin.flush()

    def close(self) -> None:
        """Ends the process; the triggerers end with their triggers."""
        if self._parent is not None:
            self._parent.communicate(timeout=30)


@contextmanager
def deferred_task(parameters: RunParameters, triggerers: Triggerers) -> Iterator[View]:
    """A DistributedTrainTrigger in Airflow's triggerer."""
    view = View()
    # The path of a socket has at most 107 bytes, and pytest's directories are longer with several workers.
    with tempfile.TemporaryDirectory(prefix="stepset-") as directory, socket.socket(socket.AF_UNIX) as listener:
        path = Path(directory) / "log.socket"
        listener.bind(str(path))
        listener.listen(1)
        request = {
            "socket": str(path),
            "stderr": str(parameters.directory / "triggerer.log"),
            "job": parameters.job,
            "name": parameters.name,
            "directory": str(parameters.directory),
            "kubeconfig": str(parameters.kubeconfig),
            "namespace": parameters.namespace,
            "target": parameters.target,
            "made_by": {
                "kubeconfig": str(parameters.direct),
                "namespace": parameters.namespace,
                "target": parameters.target,
            },
            "fields": {"poll_interval": 1},
            "environment": {
                guard.VARIABLE: str(parameters.directory / "guard"),
                "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(parameters.directory / "airflow"),
            },
        }
        triggerers.start(request)
        listener.settimeout(LIMIT)
        channel, _ = listener.accept()
    channel.settimeout(None)
    thread = threading.Thread(target=_read_triggerer, args=(channel, parameters, view), daemon=True)
    thread.start()
    try:
        yield view
    finally:
        with suppress(OSError):
            channel.shutdown(socket.SHUT_RDWR)
        thread.join(30)
        channel.close()


def _read_triggerer(channel: socket.socket, parameters: RunParameters, view: View) -> None:
    payload: dict[str, Any] | None = None
    with channel.makefile("rb") as file:
        for text in short_lines(file, 1 << 22):
            try:
                entry = json.loads(text)
            except ValueError:
                view.noise.append(text[:500])
                continue
            event = str(entry.get("event", ""))
            if entry.get("logger") == "contract":
                payload, view.memory_mb = entry["payload"], entry["memory_mb"]
            elif match := _LINE.match(event):
                view.line(match[1], match[2])
                if parameters.pause:
                    time.sleep(parameters.pause)
            elif str(entry.get("logger", "")).startswith("stepset_airflow"):
                view.message(event)
            else:
                view.noise.append(text[:500])
    log = parameters.directory / "triggerer.log"
    if log.exists():
        view.noise += log.read_text().splitlines()
    view.end(_of_event(payload))


def _of_event(payload: Mapping[str, Any] | None) -> Outcome:
    if payload is None:
        return of_error("the triggerer ended without an event", -1)
    if "error" in payload:
        return of_error(str(payload["error"]), int(ExitCode.INFRASTRUCTURE))
    status = RunStatus.from_dict(dict(payload["status"]))
    return of_status(status.to_dict(), int(status.exit_code))


def sentences(status: Mapping[str, Any]) -> list[str]:
    """The sentences that the other interfaces show for a status."""
    reason = f" ({status['reason']})" if status["reason"] else ""
    trouble = [status["trouble"]["message"]] if status.get("trouble") else []
    return [f"run {status['name']}: {status['phase']}{reason}", *status["notes"], *trouble]


def _request(parameters: RunParameters, request: Mapping[str, Any]) -> Path:
    path = parameters.directory / "request.json"
    path.write_text(json.dumps(request))
    return path


@contextmanager
def _closing(process: Process) -> Iterator[None]:
    try:
        yield
    finally:
        process.close()


def wait_for_process(condition: Callable[[], bool], what: str, seconds: float = LIMIT) -> None:
    """Waits for an action of another process.

    Raises:
        AssertionError: the condition did not hold in time.
    """
    assert until(condition, seconds), f"waited {seconds:.0f} s for {what}"
