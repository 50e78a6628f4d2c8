"""The notebook of examples/ and an interrupted cell, in a real kernel."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import stepset
from tests.waiting import LIMIT, until

pytestmark = [pytest.mark.local, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
INTERRUPTED = """\
def train():
    import time
    print("started", flush=True)
    time.sleep(600)

import stepset
stepset.run(train, framework="plain", num_nodes=2, run_name="interrupted")
"""
FAILS = """\
def train():
    import os
    import signal
    import sys
    import time

    def save(*_):
        print("stopped because of rank 1", flush=True)
        sys.exit(1)

    signal.signal(signal.SIGTERM, save)
    print("started", flush=True)
    if os.environ["STEPSET_NODE_RANK"] == "1":
        time.sleep(2)
        raise ValueError("batch size -3")
    time.sleep(600)

import stepset
stepset.run(train, framework="plain", num_nodes=2)
"""


@pytest.fixture
def client_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], NotebookClient]:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return lambda notebook: NotebookClient(notebook, timeout=int(LIMIT), kernel_name="python3")


RESUMES = """\
def train():
    return 1

import os
import stepset
os.chdir({directory!r})
stepset.run(train, framework="plain", {fields})
"""


def _html(cell: Any) -> list[str]:
    return [output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]


def test_the_example_shows_lines_and_one_table_and_returns_results(client_of: Callable[[Any], NotebookClient]) -> None:
    notebook = nbformat.read(EXAMPLE, as_version=4)
    client_of(notebook).execute()
    run = next(cell for cell in notebook.cells if cell.id == "run")
    printed = "".join(output.text for output in run.outputs if output.output_type == "stream")
    assert "[rank 1] rank 1: weight" in printed
    (table,) = _html(run)
    assert "Succeeded" in table
    assert '<polyline class="curve"' in table
    if target := os.environ.get("STEPSET_NOTEBOOK_HTML"):
        Path(target).write_text(table, encoding="utf-8")
    submitted = next(cell for cell in notebook.cells if cell.id == "submit")
    assert "'weight'" in submitted.outputs[-1].data["text/plain"]


@pytest.mark.parametrize(("call", "error"), [("stepset.run", "KeyboardInterrupt"), ("aio.run", "CancelledError")])
def test_interrupting_a_cell_ends_the_run_and_leaves_no_process(
    call: str, error: str, client_of: Callable[[Any], NotebookClient]
) -> None:
    cell = INTERRUPTED if call == "stepset.run" else INTERRUPTED.replace("stepset.run", "await stepset.aio.run")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    client = client_of(notebook)
    client.allow_errors = True

    def interrupt() -> None:
        assert until(lambda: _started() == 2)
        os.kill(client.km.provisioner.pid, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    client.execute()
    thread.join()
    output = notebook.cells[0].outputs[-1]
    assert output.ename == error
    (line,) = output.traceback
    assert re.fullmatch(rf"{error}: run interrupted was cancelled after .*", line)
    failure = stepset.status("interrupted").failure
    assert failure is not None
    assert failure.kind is stepset.FailureKind.CANCELLED
    assert failure.aftermath == ()


@pytest.mark.parametrize("call", ["run.wait()", "for line in run.logs(follow=True): print(line)"])
def test_interrupting_a_cell_that_waits_states_that_the_run_continues(
    call: str, client_of: Callable[[Any], NotebookClient]
) -> None:
    submit = INTERRUPTED.replace("stepset.run", "run = stepset.submit")
    cells = [submit, call, "run.cancel(kill=True).phase.value"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = client_of(notebook)
    client.allow_errors = True

    def interrupt() -> None:
        assert until(lambda: _started() == 2)
        assert until(lambda: _is_waiting(str(notebook.cells[1].outputs)))
        os.kill(client.km.provisioner.pid, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    client.execute()
    thread.join()
    message = "run interrupted continues; stepset.cancel('interrupted') stops it"
    assert notebook.cells[1].outputs[-1].traceback == [f"KeyboardInterrupt: {message}"]
    assert notebook.cells[2].outputs[-1].data["text/plain"] == "'Failed'"


def _is_waiting(outputs: str) -> bool:
    """Returns whether a cell shows the table of `wait`, or the lines of both ranks."""
    return "text/html" in outputs or outputs.count("started") == 2


def test_names_that_only_a_kernel_has_are_rejected(client_of: Callable[[Any], NotebookClient]) -> None:
    cell = "import stepset\n\ndef train():\n    display(get_ipython())\n\nstepset.run(train, framework='plain')"
    helper = "def load():\n    return 1\n\ndef fit():\n    return load()\n\nstepset.run(fit, framework='plain')"
    shell = "def fit():\n    !echo hello\n\nstepset.run(fit, framework='plain')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in (cell, helper, shell)])
    client = client_of(notebook)
    client.allow_errors = True
    client.execute()
    call = "for a shell command, call subprocess.run instead"
    assert notebook.cells[2].outputs[0].evalue == (
        "function: fit uses get_ipython, which the ranks do not have; lines that begin with ! or % call get_ipython;"
        f" {call}"
    )
    remedy = "or add include=['load'] to the call"
    assert notebook.cells[1].outputs[0].evalue.endswith(f"import or define it inside fit, {remedy}")
    (output,) = notebook.cells[0].outputs
    assert output.ename == "BadInputError"
    assert "train uses display, get_ipython from outside" in output.evalue
    assert output.evalue.endswith(f"; {call}")
    assert output.traceback == [f"BadInputError: {output.evalue}"], "no frames of stepset"


def test_a_function_of_a_cell_uses_the_imports_of_other_cells(client_of: Callable[[Any], NotebookClient]) -> None:
    imports = (
        "%matplotlib --list\nimport math, stepset\nimport xml.etree.ElementTree\nfrom tqdm.auto import tqdm as bar"
    )
    train = (
        "def train():\n"
        "    list(bar(range(2)))\n"
        "    return [bar.__module__, math.pi > 3, xml.etree.ElementTree.fromstring('<a/>').tag]"
    )
    cells = [imports, train, "print(stepset.run(train, framework='plain').result)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    client_of(notebook).execute()
    assert notebook.cells[2].outputs[-1].text == "['tqdm.asyncio', True, 'a']\n", "the class for a terminal"


def test_definitions_and_constants_of_other_cells_are_included_with_the_function(
    client_of: Callable[[Any], NotebookClient],
) -> None:
    cells = [
        "import math\nfrom dataclasses import dataclass\nfrom pathlib import Path\nEPOCHS, DATA = 0, Path('data')",
        "%%time\ndef area(shape):\n    return 0",
        "class Square(Shape := object):\n    pass",
        "class Shape:\n    side = 1\n    def area(self):\n        return area(self)",
        "@dataclass\nclass Square(Shape):\n    side: float = math.sqrt(4)\n",
        "%time\ndef area(shape):\n    return shape.side ** 2 % (\n7\n% 100)",
        "EPOCHS = 3",
        "def Shape_of(shape):\n    !echo no function of Python\n",
        "def train():\n    return [Square().area(), EPOCHS, str(DATA)]",
        "import stepset\nstepset.run(train, framework='plain', include=['DATA', 'EPOCHS'])",
        "stepset.run(train, framework='plain', include=[Square, 'Shape', area, 'DATA', 'EPOCHS']).result",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    client = client_of(notebook)
    client.allow_errors = True
    client.execute()
    assert (
        notebook.cells[-2]
        .outputs[0]
        .evalue.endswith("or add include=['DATA', 'EPOCHS', 'Shape', 'Square', 'area'] to the call")
    ), "with the names that Square needs"
    assert notebook.cells[-1].outputs[-1].data["text/plain"] == "[4.0, 3, 'data']"


def test_a_function_of_a_cell_is_shipped_with_the_modules_beside_the_notebook(
    client_of: Callable[[Any], NotebookClient], tmp_path: Path
) -> None:
    (tmp_path / "helper_of_cell.py").write_text("VALUE = 'from the module'\n")
    cell = """def train():
    import os
    import sys
    sys.path = [path for path in sys.path if path not in ("", os.getcwd())]
    from helper_of_cell import VALUE
    return VALUE

import stepset
stepset.run(train, framework="plain").result"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    client = client_of(notebook)
    client.resources["metadata"] = {"path": str(tmp_path)}
    client.execute()
    assert notebook.cells[0].outputs[-1].data["text/plain"] == "'from the module'"


def test_a_function_of_a_cell_runs_in_ipython_7(client_of: Callable[[Any], NotebookClient]) -> None:
    """IPython 7, for example in Google Colab, has no method that returns the name of a cell."""
    cell = """from IPython.core.compilerop import CachingCompiler
del CachingCompiler.format_code_name

def train():
    return 7

import stepset
stepset.run(train, framework="plain").result"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    client_of(notebook).execute()
    assert notebook.cells[0].outputs[-1].data["text/plain"] == "7"


def test_a_cell_that_fails_shows_the_diagnosis_and_raises(client_of: Callable[[Any], NotebookClient]) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FAILS)])
    client = client_of(notebook)
    client.allow_errors = True
    client.execute()
    outputs = notebook.cells[0].outputs
    (table,) = _html(notebook.cells[0])
    assert "ValueError: batch size -3" in table
    assert "In[1], line 15, in train: raise ValueError(&quot;batch size -3&quot;)" in table
    assert outputs[-1].ename == "TrainingFailedError"
    assert "rank 1" in outputs[-1].evalue
    assert outputs[-1].traceback == [f"TrainingFailedError: {outputs[-1].evalue}"]
    assert outputs[-1].evalue.endswith("ValueError: batch size -3"), "the table contains the advice"
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "stopped because of rank 1" not in printed
    (omitted,) = [line for line in printed.splitlines() if "omitted" in line]
    assert re.search(r"; stepset\.logs\('train-\w+'\) shows every line$", omitted)


def test_a_cell_that_waits_for_a_run_shows_the_table_before_the_run_is_over(
    client_of: Callable[[Any], NotebookClient],
) -> None:
    cell = """import stepset

def train():
    import time
    time.sleep(600)

run = stepset.submit(train, framework="plain")
status = run.wait(timeout=0.7)
print(status.phase.final)"""
    cancels = "import threading\nthreading.Timer(1, run.cancel, kwargs={'kill': True}).start()\nrun.wait()"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in (cell, cancels)])
    client_of(notebook).execute()
    (table,), (last,) = map(_html, notebook.cells)
    assert "rank 0" in table or "node 0" in table
    assert '<strong class="quiet">Cancelled</strong>' in last
    assert "Cancelled" not in table, "a later cell does not change this cell"
    printed = "".join(output.text for output in notebook.cells[0].outputs if output.output_type == "stream")
    assert printed == "False\n"


def test_with_debug_a_cell_shows_the_frames_of_stepset(
    client_of: Callable[[Any], NotebookClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSET_DEBUG", "1")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import stepset\nstepset.run('nothing.py')")])
    client = client_of(notebook)
    client.allow_errors = True
    client.execute()
    (output,) = notebook.cells[0].outputs
    assert any("run_request" in line for line in output.traceback)


def test_a_cell_shows_the_status_of_its_run_once(client_of: Callable[[Any], NotebookClient]) -> None:
    run = "import stepset\n\nstepset.run({'command': ['true'], 'framework': 'plain', 'name': 'short'})"
    wait = "handle = stepset.submit({'command': ['true'], 'framework': 'plain', 'name': 'short'})\nhandle.wait()"
    cells = [run, "_", wait, "status = handle.wait()\nstatus", "handle.status()", "handle.result()"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client_of(notebook).execute()
    assert [len(_html(cell)) for cell in notebook.cells] == [1, 1, 1, 1, 1, 0]
    assert all("Succeeded" in _html(cell)[0] for cell in notebook.cells[:-1])


class RecordingClient(NotebookClient):
    """Executes a cell. Counts its stream messages, and creates the file of each text that its table has shown."""

    def __init__(self, cell: str, files: dict[str, Path]) -> None:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
        super().__init__(notebook, timeout=int(LIMIT), kernel_name="python3")
        self.streams, self.files = 0, files

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        self.streams += msg["msg_type"] == "stream"
        for text, file in self.files.items():
            if msg["msg_type"] == "update_display_data" and text in msg["content"]["data"]["text/html"]:
                file.touch()
        return super().process_message(msg, cell, cell_index)


@pytest.mark.usefixtures("client_of")
def test_the_table_of_a_cell_shows_the_progress_bar_and_then_the_newest_line_of_a_rank(tmp_path: Path) -> None:
    files = {"33 percent</td>": tmp_path / "bar", "saving</td>": tmp_path / "line"}
    cell = f"""def train(*files):
    import pathlib, time
    for text, file in zip(["\\r33 percent", "\\r99 percent\\nsaving\\n"], map(pathlib.Path, files)):
        print(text, end="", flush=True)
        end = time.monotonic() + 30
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.05)

import stepset
stepset.run(train, framework="plain", args={[str(file) for file in files.values()]})"""
    RecordingClient(cell, files).execute()
    assert [text for text, file in files.items() if not file.exists()] == []


@pytest.mark.usefixtures("client_of")
def test_a_cell_with_many_lines_sends_few_messages_and_shows_the_last_table_and_the_result() -> None:
    cell = """def train():
    import os
    for number in range(2000):
        print("rank", os.environ["STEPSET_NODE_RANK"], "line", number)
    return "done"

import stepset
stepset.run(train, framework="plain", num_nodes=2).result"""
    client = RecordingClient(cell, {})
    client.execute()
    (run,) = client.nb.cells
    printed = "".join(output.text for output in run.outputs if output.output_type == "stream")
    assert sum(" line " in line for line in printed.splitlines()) == 4000
    assert client.streams < 4000 / 4
    (table,) = _html(run)
    assert "Succeeded" in table
    assert run.outputs[-1].data["text/plain"] == "'done'"


def _started() -> int:
    try:
        return sum(line.text == "started" for line in stepset.logs("interrupted"))
    except stepset.RunNotFoundError:
        return 0


def test_resume_does_not_continue_the_run_of_another_directory_unless_its_name_is_given(
    client_of: Callable[[Any], NotebookClient], tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    calls = [(one, ""), (one, "resume=True"), (two, "resume=True"), (two, "resume=True, name='train'")]
    cells = [
        nbformat.v4.new_code_cell(RESUMES.format(directory=str(directory), fields=fields))
        for directory, fields in calls
    ]
    client = client_of(nbformat.v4.new_notebook(cells=cells))
    client.allow_errors = True
    client.execute()
    third, second, first = (status.name for status in stepset.list_runs())
    assert cells[2].outputs[-1].evalue == (
        f"resume: the newest run of job train, {second}, was started in {one}, not {two}; to start a"
        f" separate job, pass a different name; to continue run {second} from this directory, pass name='train'"
    )
    assert stepset.status(second).continues == first
    note = f"run {second} was started in {one}, this run was started in {two}"
    assert note in stepset.status(third).notes
