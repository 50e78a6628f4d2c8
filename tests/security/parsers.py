"""The parsers of input that other programs and accounts write, each as a function of bytes, with its declared errors.

`python -m tests.security.parsers` feeds every entry of the corpus to each parser. Arguments select parsers by name.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stepset.agent import diagnosis
from stepset.agent.config import Config, read_config
from stepset.agent.errors import AgentError
from stepset.agent.events import RankEvents, read_result
from stepset.agent.lines import LauncherLines, Lines, PartJoiner
from stepset.agent.redact import Redactor
from stepset.api import render
from stepset.backends.base import LogSelection
from stepset.backends.kubernetes.api.answers import Answer
from stepset.backends.kubernetes.api.kubeconfig import load_into
from stepset.backends.kubernetes.api.replies import read_reply
from stepset.backends.kubernetes.api.resources import WORKLOADS
from stepset.backends.kubernetes.find import newest, runs_in
from stepset.backends.kubernetes.logs.pods import LogPod
from stepset.backends.kubernetes.logs.rows import rows_of
from stepset.backends.kubernetes.stop import exists_with_uid
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.backends.kubernetes.submit.refusals import misses_runtime, no_namespace, refusals
from stepset.backends.kubernetes.submit.rejections import unknown_fields
from stepset.backends.local.logs.files import read_lines
from stepset.backends.local.logs.selection import select_rows
from stepset.backends.local.runs.store import RunStore
from stepset.backends.prune import PruneRule
from stepset.errors import BadInputError, StepsetError
from stepset.frameworks import make_plan
from stepset.plan.starters import launcher_in
from stepset.printable import printable, printable_json, printable_line, printable_text
from stepset.run_status import Phase, Progress, RunStatus
from stepset.sources.code_files import find_code_files
from stepset.sources.ignore import IgnoreRules
from stepset.sources.requirements import script_metadata
from stepset.sources.secret_files import holds_secret, secret_by_name
from stepset.spec import load_job
from stepset.spec.load import read_job_file
from stepset.watch.agent_events import read_events
from stepset.watch.bounded_json import parse_json
from stepset.watch.cluster.events import read_event
from stepset.watch.cluster.kueue.workload import read_kueue_workload, read_positions
from stepset.watch.cluster.pods import read_pod
from stepset.watch.cluster.verdict import parse_verdict, verdict_text
from stepset.watch.cluster.workload import read_ranks, read_workload
from stepset.watch.diagnose import Observation, diagnose
from stepset.watch.lines import Joiner, Splitter
from stepset.watch.list_watch import ListWatch, decode_list
from stepset.watch.log_cursor import LogCursor
from stepset.watch.redacted_lines import RedactedLines
from stepset.watch.state.reports import Reports
from stepset.watch.state.termination_message import read_termination_message
from stepset_kfp.encoding import with_decoded_inputs
from stepset_kfp.job_inputs import job_mapping
from stepset_kfp.packing import as_text, from_text, script_archive, unpack
from stepset_kfp.ranks.exchange import SharedDirectory
from tests.security.corpus import entries

SECONDS = 20.0
"""The CPU time in which a parser must process an entry of the corpus; the largest has a megabyte."""


@dataclass(frozen=True)
class Parser:
    """A parser as a function of bytes.

    Args:
        read: parses the bytes and uses the result.
        valid: a valid input, which tests alter.
        declared: the errors that the parser declares; any other exception is a defect.
    """

    read: Callable[[bytes], object]
    valid: bytes
    declared: tuple[type[Exception], ...] = ()

    def check(self, data: bytes) -> None:
        """Parses the bytes; raises every error that is not declared, and AssertionError for an unusable message."""
        try:
            self.read(data)
        except self.declared as error:
            assert str(error)


def text_of(data: bytes) -> str:
    """The bytes as text, in which lone surrogates stand for bytes that are not UTF-8."""
    return data.decode("utf-8", "surrogateescape")


@contextmanager
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as made:
        yield Path(made)


STATUS = RunStatus(
    "run",
    "job",
    "local",
    Phase.SUCCEEDED,
    created=1.0,
    started=2.0,
    finished=3.0,
    progress=Progress(1, 0.5, {"a": 1.0}),
)


def output_of_a_pod(data: bytes) -> None:
    reports, redacted, splitter, joiner = Reports(), RedactedLines(), Splitter("node 0"), Joiner()
    for batch in (splitter.feed(data), splitter.finish()):
        events = list(read_events(batch.events))
        reports.see("pod", batch)
        redacted.see(events)
        for source, text in joiner.join(batch.lines):
            printable_line(redacted.shown(source, text))


def termination_message(data: bytes) -> None:
    for code in (0, 1):
        found = read_termination_message(text_of(data), code, agent=True)
        json.dumps([found.failed, found.events, found.tails, found.result])


def verdict(data: bytes) -> None:
    if (found := parse_verdict(text_of(data))) is not None:
        assert parse_verdict(verdict_text(found)) is not None


def watch(data: bytes) -> None:
    list_watch = ListWatch()
    list_watch.next_request()
    list_watch.listed({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []})
    for change in list_watch.data(data + b"\n"):
        read_object(dict(change.object))


def page(data: bytes) -> None:
    with suppress(ValueError, StepsetError):  # a list without a version, or no list
        reply = read_reply(Answer("server", 200, "GET", "/api/v1/pods"), data, decode=decode_list)
        for change in ListWatch().listed(reply.body):
            read_object(dict(change.object))


def objects(data: bytes) -> None:
    found = json.loads(data)
    if isinstance(found, dict):
        read_object(found)
    read_positions(found)


def read_object(found: dict[str, Any]) -> None:
    read_pod(found, deleted=False)
    read_workload(found)
    read_event(found)
    read_kueue_workload(found)


@cache
def submitted() -> tuple[FieldMapper, list[dict[str, Any]]]:
    """The field map and the manifests of a job."""
    fields = {"command": ["true"], "image": "a:1", "name": "run"}
    job = load_job(fields)
    return FieldMapper(job, make_plan(job), "cli"), [*render(fields), *render(fields, target="trainjob")]


def reply(data: bytes) -> None:
    """Reads a server's reply to the creation of an object, with any status, as any header, and as a list of runs."""
    words = text_of(data[:4096])
    mapper, manifests = submitted()
    for status in (200, 400, 401, 403, 404, 409, 413, 422, 429, 500, 504):
        try:
            found = read_reply(Answer("server", status, "POST"), data, (words, f'299 - "{words}"'), date=words)
        except StepsetError as error:
            assert len(str(error)) < 1000
            continue
        no_namespace(found)
        exists_with_uid(found)
        if workloads := runs_in([WORKLOADS["jobset"]], [found]):
            newest(workloads)
        for manifest in manifests:
            lines = [*refusals(found, manifest, mapper), unknown_fields(words, manifest, mapper)]
            assert all(len(line) < 2000 for line in lines)
            misses_runtime(found, manifest)
        assert found.lacks_object in (True, False) and len(found.message) <= 300


POD = LogPod("u", "p", "node", "node", 0, 0, "node 0", agent=True, started=True, restarts=0, over=True, deleted=False)
DELIVERED = b"2026-01-01T12:00:00.123456789Z a line\n2026-01-01T12:00:01.123456789Z another\n"


def log_of_a_pod(data: bytes) -> None:
    """Reads a log as one response, and as the second response after a line was delivered, in UTC and elsewhere."""

    async def chunks(log: bytes) -> AsyncIterator[bytes]:
        yield log

    async def read(log: bytes) -> None:
        async for times, rows in rows_of(POD, chunks(log), None):
            assert len(times) == len(rows)

    for before in (b"", DELIVERED, DELIVERED.replace(b"Z ", b"+02:00 ")):
        cursor = LogCursor(stamped=True)
        cursor.feed(before)
        cursor.cut()
        asyncio.run(read(cursor.feed(data) + cursor.feed(b"\n")))
        assert cursor.since is None or cursor.since.endswith("Z")
        LogCursor.from_dict(json.loads(json.dumps(cursor.to_dict())))


def job_file(data: bytes) -> None:
    with directory() as path:
        (path / "job.yaml").write_bytes(data)
        for target in ("jobset", "trainjob", "statefulset", "job", "volcano"):
            json.dumps(render(dict(read_job_file(path / "job.yaml")), target=target, base_dir=path))


def shipped_file(data: bytes) -> None:
    launcher_in(text_of(data))
    for name in ("a.pem", "credentials.json", ".npmrc", "pip.conf", "train.py", text_of(data[:4096])):
        holds_secret(name, data)
        secret_by_name(name)


def metadata_of_a_script(data: bytes) -> None:
    """Reads a script, and one whose metadata has this content."""
    lines = [b"# /// script", *(b"# " + line for line in data.split(b"\n")), b"# ///", b""]
    for text in (data, b"\n".join(lines)):
        with suppress(BadInputError):
            script_metadata(text)


def ignore_file(data: bytes) -> None:
    """Reads an ignore file in a code directory and in a folder of it, and applies it to long names."""
    with directory() as path:
        (path / "a" / "b").mkdir(parents=True)
        (path / "a" / "b" / "train.py").touch()
        for folder in (path, path / "a"):
            (folder / ".stepsetignore").write_bytes(data)
        rules = IgnoreRules.of_directory(path)
        for name in ("a" * 255, "/".join(["a" * 15] * 200), text_of(data[:4096])):
            rules.ignores(name, is_directory=True)
            rules.ignores(name, is_directory=False)
        find_code_files(path)


def config_of_an_agent(data: bytes) -> None:
    with directory() as path:
        (path / "config.json").write_bytes(data)
        read_config(str(path / "config.json"))


def kubeconfig(data: bytes) -> None:
    from kubernetes import client

    with directory() as path:
        (path / "config").write_bytes(data)
        load_into(client.Configuration(), str(path / "config"), None, "python")


def run_directory(data: bytes) -> None:
    """Reads a run in whose directory one of the files has this content, then each of the others."""
    state = json.dumps(STATUS.to_dict()).encode()
    records = ("state.json", "supervisor.json", "processes.json", "points.json", "job.json")
    for name in (*records, "log", "log.times", "log.attempts"):
        with directory() as home:
            run = home / "runs" / "run"
            run.mkdir(parents=True)
            (run / "log").write_bytes(b"[rank 0] a line\n")
            (run / "log.times").touch()
            (run / "log.parts").touch()
            (run / "state.json").write_bytes(state)
            (run / name).write_bytes(data)
            store = RunStore(home)
            json.dumps([status.to_dict() for status in store.list()])
            found = store.find("run")
            found.with_details(STATUS)._repr_html_()
            for read in (found.read, found.recorded_job, lambda found=found: list(read_lines(found))):
                with suppress(StepsetError):
                    read()
            for selection in (LogSelection(), LogSelection(since=2.0), LogSelection(previous=True)):
                with suppress(StepsetError):
                    for block in select_rows(found, selection):
                        assert all(isinstance(row, bytes) for _, row in block)
            store.prune(PruneRule(), time.time())


def output_of_a_rank(data: bytes) -> None:
    """Reads, as a pod's agent, what a rank printed, what it wrote into the pipe of events, and its result."""
    redactor, failures = Redactor(["secret", "0123456789"]), list[dict[str, Any]]()
    with directory() as path:
        config = Config({"version": 1, "group": "node", "dir": str(path), "launcher": ["torchrun"]})
        events = RankEvents(config, failures, failures.append, lambda rank: joiner.finish(b"rank %d" % rank))
        joiner = PartJoiner(events.see, redactor)
        for source in (Lines("rank 0", redactor), LauncherLines("launcher", joiner, redactor)):
            source.feed(data)
            source.finish()
        for mark in (b"[stepset] ", b"[stepset 1+] ", b"[rank 0+] ", b""):
            joiner.feed(mark + data + b"\n")
        joiner.finish()
        (path / "file").write_bytes(data)
        text = data.decode("utf-8", "replace")
        for rank in (None, 0):
            diagnosis.find_error(text, str(path / "file"), rank, redactor)
        diagnosis.launcher_report(text)
        diagnosis.last_lines(text)
        for known in (events, RankEvents(config, [], failures.append, lambda _: None)):
            with suppress(AgentError):
                read_result(config, {"STEPSET_RESULT_FILE": str(path / "file")}, known, redactor)


def error_text(data: bytes) -> None:
    text = text_of(data)
    diagnose([Observation("rank 0", 1.0, rank=0, exit_code=1, error=text, tail=tuple(text.split("\n")[-40:]))])


UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shown_text(data: bytes) -> None:
    for text in (text_of(data), data.decode("latin-1")):
        assert not UNSAFE.search(printable(text))
        printable_text(text)
        printable_line(text)
        printable_json(json.dumps(text, ensure_ascii=False))


OUTPUTS: dict[str, Any] = {
    "outputFile": "",
    "artifacts": {"model": {"artifacts": [{"name": "model", "uri": "gs://bucket/model"}]}},
}


def executor_output(data: bytes) -> None:
    """Reads the executor output that rank 0 of a component wrote."""
    with directory() as path:
        shared = SharedDirectory(path / ".stepset" / "step", path.resolve())
        given = {"outputs": {**OUTPUTS, "outputFile": str(path / "output.json")}}
        shared.stage_inputs(given)
        (path / ".stepset" / "step" / "outputs" / "executor_output.json").write_bytes(data)
        shared.fetch_outputs(given)


def component_input(data: bytes) -> None:
    """Reads the inputs of a component: a text, packed code, and JSON."""
    text = text_of(data)
    with suppress(BadInputError):
        job_mapping({"framework": text})
    with suppress(BadInputError), directory() as path:
        unpack(from_text(text), path)
    found = json.loads(data)
    inputs = with_decoded_inputs(
        {"encoded_inputs": found, "job": found if isinstance(found, dict) else {}}, {"value_1": found}
    )
    job_mapping({**inputs, "args": [found], "env": {"A": found}})


EVENT = b'[stepset] {"event": "failed", "rank": 0, "at": 5.5, "exit_code": 1, "error": "e", "tail": ["a"]}\n'
PROGRESS = b'[rank 0] {"stepset": {"step": 1, "progress": 0.5, "metrics": {"loss": 1.5}}}\n'
OBJECT = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "run", "uid": "u", "resourceVersion": "8", "labels": {"a": "b"}, "annotations": {"a": "b"}},
    "spec": {"containers": [{"name": "node", "command": ["true"]}], "replicas": 1},
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"name": "node", "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}],
    },
    "items": [{"metadata": {"ownerReferences": [{"uid": "u"}]}, "positionInLocalQueue": 0}],
}
CAUSE = {"field": "spec.replicatedJobs[0].template.spec.template.spec.containers[0].image", "message": "is bad"}
REFUSAL = {
    "kind": "Status",
    "status": "Failure",
    "message": 'JobSet.jobset.x-k8s.io "run" is invalid: spec.replicatedJobs[0].template.spec.template.spec: no',
    "reason": "Invalid",
    "code": 422,
    "details": {"name": "run", "kind": "namespaces", "causes": [CAUSE]},
}
KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "n"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "c", "user": {"token": "t"}}],
}
JOB = {"command": ["true"], "image": "a:1", "num_nodes": 2, "env": {"A": "1"}, "resources_per_node": {"cpu": "1"}}
CONFIG = {"version": 1, "group": "node", "dir": "/pod", "launcher": ["torchrun"], "process_env": {"A": "1"}}
BOX = b"-" * 72 + b"\nMPI_ABORT was invoked on rank 1\n" + b"-" * 72 + b"\n"
TRACEBACK = b'[rank0]: Traceback (most recent call last):\n[rank0]:   File "a.py", line 1\n[rank0]: ValueError: bad\n'


def dumped(data: object) -> bytes:
    return json.dumps(data).encode()


PARSERS = {
    "JSON of another account": Parser(parse_json, dumped(OBJECT), (ValueError,)),
    "output of a pod": Parser(output_of_a_pod, EVENT + PROGRESS + b"[rank 0+] part\n[rank 0] end\n"),
    "termination message": Parser(termination_message, b'{"stepset": {"failed": {"rank": 0, "at": 1.5}}}'),
    "verdict": Parser(verdict, dumped(STATUS.to_dict())),
    "annotation of ranks": Parser(lambda data: read_ranks(text_of(data)), b'{"node": [0, 2]}'),
    "watch of a collection": Parser(watch, dumped({"type": "ADDED", "object": OBJECT})),
    "page of a list": Parser(page, dumped({"metadata": {"resourceVersion": "7"}, **OBJECT}), (StepsetError,)),
    "Kubernetes object": Parser(objects, dumped(OBJECT), (ValueError, RecursionError)),  # those of `json.loads`
    "reply of an API server": Parser(reply, dumped(REFUSAL)),
    "log of a pod": Parser(log_of_a_pod, DELIVERED),
    "job file": Parser(job_file, dumped(JOB), (BadInputError,)),
    "file of a code directory": Parser(shipped_file, b"#!/bin/sh\nexec $MPIRUN -n 4 ./a.out\n"),
    "metadata of a script": Parser(
        metadata_of_a_script,
        b'dependencies = ["rich<14"]\nrequires-python = ">=3.11,<4"\n[tool.uv]\na.b = 2026-01-01\n',
    ),
    "ignore file": Parser(ignore_file, b"# data\n*.bin\n/out/\n!keep/*.bin\n**/a[!b]?\n\\#x \n", (BadInputError,)),
    "kubeconfig": Parser(kubeconfig, dumped(KUBECONFIG), (BadInputError,)),
    "directory of a local run": Parser(run_directory, dumped(STATUS.to_dict())),
    "config of an agent": Parser(config_of_an_agent, dumped(CONFIG), (AgentError,)),
    "output and result of a rank": Parser(output_of_a_rank, EVENT.split(b" ", 1)[1] + TRACEBACK + BOX),
    "error of a rank": Parser(error_text, b"ValueError: bad\n"),
    "text for a terminal": Parser(shown_text, b"\x1b[31mred\x1b[2J\r 10%\r 100%\n"),
    "KFP: executor output": Parser(executor_output, dumped(OUTPUTS), (StepsetError,)),
    "KFP: inputs of a component": Parser(
        component_input,
        as_text(script_archive("train.py", b"print(1)\n")).encode(),
        (BadInputError, ValueError, RecursionError),
    ),
}


def feed(parser: Parser) -> list[str]:
    """Feeds the corpus to a parser; returns one line for each entry with an undeclared error, or that took long."""
    problems = []
    for name, data in entries().items():
        began = time.process_time()
        try:
            parser.check(data)
        except Exception as error:  # noqa: BLE001  # every exception is reported
            problems.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        if (took := time.process_time() - began) > SECONDS:
            problems.append(f"{name}: took {took:.0f} s")
    return problems


def main() -> None:
    """Prints the name of each parser before it starts, because a crash or a time limit may end the process."""
    found = False
    for name in sys.argv[1:] or PARSERS:
        print(name, flush=True)
        for problem in feed(PARSERS[name]):
            print(f"  {problem}", flush=True)
            found = True
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
