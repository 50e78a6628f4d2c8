"""Results of the API in a cell: IPython's formatters get text that a user can read, and escaped HTML."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.notebook.results import SHOWN_LINES
from stepset.watch.present.sentences import NOT_FINITE

formatters = pytest.importorskip("IPython.core.formatters")
pytestmark = pytest.mark.local

HOSTILE = "<script>alert(1)</script>"


def shown(value: object) -> tuple[str, str]:
    """Returns the text and the HTML that a cell shows of a value."""
    data, _ = formatters.DisplayFormatter().format(value)
    html: str = data.get("text/html", "")
    assert "<script" not in html
    return data["text/plain"], html


def _prints() -> Callable[[str, int], None]:
    def show(line: str, count: int) -> None:
        for number in range(count):
            print(f"{line} {number}")

    return show


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that printed more lines than a cell shows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSET_HOME", str(tmp_path_factory.mktemp("home")))
        handle = stepset.submit(_prints(), framework="plain", args=[HOSTILE, SHOWN_LINES + 5])
        assert handle.wait().phase is stepset.Phase.SUCCEEDED
        yield handle


def test_a_line_is_shown_as_the_line(run: stepset.Run) -> None:
    line = next(run.logs())
    assert str(line) == f"[rank 0] {HOSTILE} 0"
    assert shown(line)[0] == str(line)
    assert shown(stepset.LogLine("rank 1", "\x1b[2Jcleared"))[0] == "[rank 1] \\x1b[2Jcleared"


def test_logs_show_the_existing_lines_and_are_not_consumed_by_it(run: stepset.Run) -> None:
    lines = run.logs()
    text, html = shown(lines)
    assert text.splitlines()[0] == f"[rank 0] {HOSTILE} 5"
    assert len(text.splitlines()) == SHOWN_LINES
    assert f"[rank 0] &lt;script&gt;alert(1)&lt;/script&gt; {SHOWN_LINES + 4}" in html
    assert f"the last {SHOWN_LINES} lines" in html
    assert next(lines).text == f"{HOSTILE} 0"
    assert len([*lines]) == SHOWN_LINES + 4
    assert shown(run.logs(tail=1))[0] == f"[rank 0] {HOSTILE} {SHOWN_LINES + 4}"
    assert repr(run.logs()) == f"<the lines of {run.name}; iterate over them>"
    assert str(run.logs(tail=2)).splitlines() == [f"[rank 0] {HOSTILE} {SHOWN_LINES + n}" for n in (3, 4)]
    assert f"<strong>{run.name}</strong>" in shown(stepset.logs("show"))[1], "the name of the job is not the title"


def test_closed_logs_have_no_further_lines(run: stepset.Run) -> None:
    lines = run.logs()
    next(lines)
    lines.close()
    assert [*lines] == []


def test_runs_are_shown_as_a_table(run: stepset.Run) -> None:
    runs = stepset.list_runs()
    assert [found.name for found in runs] == [run.name]
    text, html = shown(runs)
    header, row = text.splitlines()
    assert header.split()[:2] == ["NAME", "PHASE"]
    assert row.split()[:2] == [run.name, "Succeeded"]
    assert str(stepset.list_runs()[:1]).splitlines() == str(stepset.list_runs()).splitlines()
    assert stepset.list_runs()[0] == stepset.status(run.name)
    assert text == repr(runs) == str(runs)
    assert '<td class="good">Succeeded</td>' in html
    assert f"<td>{run.name}</td>" in html
    for none in (stepset.list_runs(phase="failed"), stepset.prune(dry_run=True)):
        assert shown(none)[0] == "no runs"
        assert "no runs" in shown(none)[1]
    assert run.name in shown(stepset.delete(run.name, dry_run=True))[0]


def test_a_status_has_the_duration_of_a_finished_run(run: stepset.Run) -> None:
    status = run.status()
    assert status.finished is not None
    assert status.duration == status.finished - status.created > 0
    assert stepset.RunStatus("digits-1", "digits", "local", created=1.0).duration is None
    assert stepset.RunStatus("digits-1", "digits", "kubernetes", finished=9.0).duration is None, "created is unknown"


def test_many_runs_make_a_table_of_bounded_size() -> None:
    status = stepset.RunStatus(HOSTILE, HOSTILE, "local", reason=HOSTILE, program="x" * 10_000)
    text, html = shown(stepset.RunList([status] * 1000))
    assert len(text.splitlines()) == 1001
    assert "and 800 more runs" in html
    assert len(html) < 150_000


def test_a_diagnosis_is_shown_as_its_text_and_as_the_status(run: stepset.Run) -> None:
    found = stepset.diagnose(run.name)
    assert shown(found)[0] == found == str(found)
    assert found.startswith(f"run {run.name} succeeded")
    assert "rank 0" in shown(found)[1]
    assert pickle.loads(pickle.dumps(found)).status == found.status


def test_a_status_is_shown_as_the_diagnosis(run: stepset.Run) -> None:
    status = run.status()
    assert str(status) == str(stepset.diagnose(run.name)) == shown(status)[0]


def test_a_handle_is_shown_as_the_status_of_its_run(run: stepset.Run) -> None:
    text, html = shown(run)
    assert text == f"Run(name={run.name!r}, backend='local', cluster=None)"
    assert "Succeeded" in html
    gone = stepset.Run(HOSTILE)
    assert "no such run" in shown(gone)[1]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("stepset.aio.", {"logs", "run", "status", "wait"}),
        ("run.", {"backend", "cancel", "cluster", "logs", "name", "result", "stacks", "status", "wait"}),
        ("status.ra", {"ranks"}),
        ("runs[0].fai", {"failure"}),
        ("stepset.FailureKind.O", {"OUT_OF_MEMORY"}),
        ("stepset.run(num_", {"num_nodes="}),
        ("stepset.submit(train, check", {"checkpoint_dir="}),
        ("await stepset.aio.run(proc", {"procs_per_node="}),
    ],
)
def test_names_are_completed(text: str, names: set[str], run: stepset.Run) -> None:
    completer = pytest.importorskip("IPython.core.completer")
    known = {"stepset": stepset, "run": run, "status": run.status(), "runs": stepset.RunList([run.status()])}
    with completer.provisionalcompleter():
        found = completer.IPCompleter(namespace=known, use_jedi=False).completions(text, len(text))
        assert {each.text.removeprefix(".").split(".")[-1] for each in found} == names


def test_the_text_of_a_status_needs_no_other_import(tmp_path: Path) -> None:
    program = "import stepset; print(stepset.RunStatus('digits-1', 'digits', 'local', stepset.Phase.RUNNING))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("run digits-1 is not over: Running")


def _reports() -> Callable[[float], dict[str, Any]]:
    def fit(lr: float) -> dict[str, Any]:
        import json

        print(json.dumps({"stepset": {"step": 3, "metrics": {"loss": lr / 2}}}))
        return {"lr": lr, "note": "<script>alert(1)</script>"}

    return fit


def test_the_table_of_runs_has_the_last_metrics_and_the_result(home: Path) -> None:
    stepset.run(_reports(), framework="plain", args=[1 / 3])
    text, html = shown(stepset.list_runs())
    header, row = text.splitlines()
    assert header.split()[-2:] == ["METRICS", "PROGRAM"]
    assert row[header.index("METRICS") :].startswith("loss=0.16667  ")
    assert "<th>metrics</th><th>result</th>" in html
    assert '<td class="text"><span>loss=0.16667</span></td>' in html
    assert "{&quot;lr&quot;: 0.33333, &quot;note&quot;: &quot;&lt;script&gt;" in html


def _diverges() -> Callable[[], dict[str, float]]:
    def fit() -> dict[str, float]:
        return {"loss": float("nan")}

    return fit


def test_a_note_states_that_the_result_of_a_function_contains_nan(home: Path) -> None:
    status = stepset.run(_diverges(), framework="plain")
    assert status.notes == (NOT_FINITE,)
    assert repr(status.result) == "{'loss': None}"
    assert f"note: {NOT_FINITE}" in shown(status)[1]


def test_the_rows_of_explain_are_shown_as_a_table() -> None:
    env = {"MASTER_ADDR": {"value": HOSTILE, "override": True}}
    job = {"command": ["true"], "framework": {"kind": "torch", "launcher": "none"}, "env": env}
    rows = stepset.explain(job)
    text, html = shown(rows)
    header, *lines = text.splitlines()
    assert header.split() == ["VARIABLE", "VALUE", "RULE"]
    assert len(lines) == len(rows)
    assert text == repr(rows)
    address = next(row for row in rows if row.variable == "MASTER_ADDR")
    assert any(f"; replaces {address.replaced}" in line for line in lines if line.startswith("MASTER_ADDR "))
    assert "<td>MASTER_ADDR</td>" in html
    assert shown(stepset.explain({"command": ["true"], "framework": "mpi"}))[0].startswith("GROUP")
