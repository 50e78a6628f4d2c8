"""The requirements of a job and the metadata of its script (PEP 723): how they are met or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.local.requirements import Prepared, prepare_requirements
from stepset.errors import BadInputError, InfrastructureError
from stepset.frameworks import make_plan
from stepset.rendering import make_request, render
from stepset.requirements import PROGRAM_FILE
from stepset.sources import read_sources
from stepset.sources.requirements import Requirements, script_metadata
from stepset.spec import parse_job
from stepset.targets.request import TARGET_NAMES
from stepset.targets.validation.preflight import check

JOB = parse_job({"script": "train.py"})
SCRIPT = '# /// script\n# requires-python = ">=3.8"\n# dependencies = ["missing-zz>=1"]\n# ///\n'


def block(*lines: str) -> bytes:
    return "\n".join(["# /// script", *(f"# {line}" for line in lines), "# ///", ""]).encode()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["dependencies = ["], "script: its `# /// script` block is not TOML"),
        ([f"a = {'9' * 5000}"], "script: its `# /// script` block is not TOML: it has too many levels, or an integer"),
        ([f"a = {'[' * 5000}"], "script: its `# /// script` block is not TOML: it has too many levels, or an integer"),
        ([f"{'a.' * 101}a = 1"], "script: a line of its `# /// script` block has more than 100 dots outside quotes"),
        (["dependencies = 1"], "script: `dependencies` of its"),
        (["dependencies = ['-r x']"], "script: dependencies: '-r x' is an option of pip"),
        (["dependencies = ['a b']"], "script: dependencies: 'a b' is not a requirement"),
        (["requires-python = 3"], "script: `requires-python` of its"),
        (["requires-python = 'three'"], "script: `requires-python` of its"),
    ],
)
def test_invalid_metadata_is_reported_in_one_line(lines: list[str], problem: str) -> None:
    with pytest.raises(BadInputError) as caught:
        script_metadata(block(*lines))
    (line,) = caught.value.problems
    assert line.startswith(problem)
    assert "\n" not in line


def test_quoted_dots_are_not_counted() -> None:
    packages = [f"a @ https://x.example/{'a.' * 40}whl", f"b @ https://x.example/{'b.' * 80}whl"]
    assert script_metadata(block(f"dependencies = {json.dumps(packages)}")).packages == tuple(packages)


@pytest.mark.parametrize(
    "text", ["a", "a>=1,<2", "a[b,c]~=1.0", "a @ https://x.example/a.whl", "a; python_version<'4'"]
)
def test_requirements_of_pep_508_are_accepted(text: str) -> None:
    assert script_metadata(block(f"dependencies = [{json.dumps(text)}]")) == Requirements((text,))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("rich", "requirements: 'rich' is text, not a list; write [\"rich\"]"),
        (
            ["rich", "-r x.txt"],
            "requirements.1: '-r x.txt' is an option of pip; write it like 'rich>=13,<15' (PEP 508)",
        ),
        (["./lib"], "requirements.0: './lib' is not a requirement; write it like 'rich>=13,<15' (PEP 508)"),
        (["a;"], "requirements.0: 'a;' is not a requirement; write it like 'rich>=13,<15' (PEP 508)"),
        (["a\n>=1"], "requirements.0: 'a\\n>=1' is not a requirement"),
        (["a" * 501], f"requirements.0: '{'a' * 30}'... has 501 characters; a requirement has at most 500"),
        (["a>=" + ",".join(["1>=1"] * 90) + "!"], "requirements.0: "),
        (["a @ https://me:secret@x.example/a.whl"], "requirements.0: contains credentials"),
        ([f"a{n}" for n in range(201)], "requirements: "),
    ],
)
def test_invalid_requirements_of_a_job_are_reported_in_one_line(given: Any, problem: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_job({"script": "train.py", "requirements": given})
    (line,) = caught.value.problems
    assert line.startswith(problem)
    assert "secret@" not in line


def test_the_requirements_of_job_and_script_are_combined_and_a_note_states_both(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    sources = read_sources(parse_job({"script": "train.py", "requirements": ["einops", "missing-zz>=1"]}), tmp_path)
    assert sources.requirements == Requirements(("einops", "missing-zz>=1"), ">=3.8")
    assert sources.notes == ()
    sources = read_sources(parse_job({"script": "train.py", "requirements": ["einops"]}), tmp_path)
    assert sources.requirements == Requirements(("einops", "missing-zz>=1"), ">=3.8")
    assert sources.notes == (
        "requirements: those of the job (einops) and of the script's metadata (missing-zz>=1) are installed together",
    )


@pytest.mark.parametrize(
    "text",
    [
        "# /// script\n# ///\n",
        "# /// script\n# dependencies = ['a']\n",
        "# /// script\n# dependencies = ['a']\n\n# ///\n",
        "# /// script\n#dependencies = ['a']\n# ///\n",
        " # /// script\n# dependencies = ['a']\n# ///\n",
        "# /// other\n# /// script\n# dependencies = ['a']\n# ///\n",
    ],
)
def test_what_is_not_a_block_of_metadata_is_ignored(text: str) -> None:
    assert script_metadata(text.encode()) == Requirements()


def test_a_block_ends_with_the_last_end_line_of_its_comments() -> None:
    text = "import os\n# first\n# /// script\n# dependencies = [\n#   'a', # ///\n#\n# ]\n# ///\n# more\n\n# ///\n"
    assert script_metadata(text.encode()) == Requirements(("a",))
    with pytest.raises(BadInputError, match="is not TOML"):
        script_metadata(b"# /// script\n# dependencies = ['a']\n# ///\n# ///\n")
    with pytest.raises(BadInputError, match="has several"):
        script_metadata(block("dependencies = ['a']") + b"\n" + block("dependencies = ['a']"))


KEY = "import sys; from stepset.requirements.install import _key; print(_key(sys.argv[1:]))"


def test_another_python_is_refused_with_its_version() -> None:
    with pytest.raises(BadInputError, match=r"^requirements: the script requires Python >=4, and .* is 3\."):
        prepare_requirements(Requirements(python=">=4"), JOB, {"PATH": "/usr/bin:/bin"})


def test_installed_packages_need_no_uv() -> None:
    environ = {"PATH": "/usr/bin:/bin"}
    required = Requirements(("pydantic>=2",), ">=3.11,<4")
    assert prepare_requirements(required, JOB, environ) == Prepared(environ)


def test_a_missing_uv_is_named_with_the_remedy(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path)}
    with pytest.raises(BadInputError, match=r"^requirements: .* lacks missing-zz, and uv is missing, .*; install uv"):
        prepare_requirements(Requirements(("missing-zz",)), JOB, environ)


@pytest.mark.parametrize("planted", ["stepset", "stepset/requirements"])
@pytest.mark.parametrize("how", ["writable by all", "of the user of sudo"])
def test_packages_that_another_user_may_have_written_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str, how: str
) -> None:
    """The name of the directory of equal requirements can be computed, so another user can create it before the run."""
    if how != "writable by all" and os.geteuid() != 0:
        pytest.skip("only root can create directories of other users")
    cache = tmp_path / "stepset" / "requirements"
    cache.mkdir(parents=True)
    python = Path(sys.executable).with_name("python3")  # as search_path selects it
    place = subprocess.check_output([python, "-c", KEY, "missing-zz"], text=True).strip()
    (cache / place).mkdir()
    environ = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path)}
    assert prepare_requirements(Requirements(("missing-zz",)), JOB, environ).environ["PYTHONPATH"] == str(cache / place)
    if how == "writable by all":
        (tmp_path / planted).chmod(0o777)
    else:
        os.chown(tmp_path / planted, 4321, 4321)
        monkeypatch.setenv("SUDO_UID", "4321")
    with pytest.raises(InfrastructureError, match=f"{tmp_path / planted}.*set XDG_CACHE_HOME"):
        prepare_requirements(Requirements(("missing-zz",)), JOB, environ)


def test_the_program_starts_the_command_of_a_pod(tmp_path: Path) -> None:
    given = json.dumps({"requirements": ["pydantic"], "python": ""})
    words = [sys.executable, "-I", str(PROGRAM_FILE), given, str(tmp_path), "--", sys.executable, "-c", "print(7)"]
    assert subprocess.check_output(words, text=True) == "7\n"


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_pods_of_every_target_install_before_the_agent_starts(tmp_path: Path, target: str) -> None:
    objects = rendered(tmp_path, target)
    text = json.dumps(objects)
    assert "/stepset/agent/install.py" in text
    assert "missing-zz>=1" in text
    (agent,) = [each for each in objects if each["metadata"]["name"].endswith("-agent")]
    assert agent["data"]["install.py"] == PROGRAM_FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_the_requirements_of_a_job_without_script_are_installed_in_the_same_way(tmp_path: Path, target: str) -> None:
    job = parse_job({"module": "train", "image": "image", "requirements": ["missing-zz>=1"]})
    text = json.dumps(render(make_request(job, read_sources(job, tmp_path)), target))
    assert "/stepset/agent/install.py" in text
    assert "missing-zz>=1" in text


def test_pods_that_cannot_install_are_refused_before_anything_is_created(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"^requirements: only pods with stepset's agent"):
        rendered(tmp_path, "job", framework="plain", agent=False)
    with pytest.raises(BadInputError, match=r"^requirements: pods in which mpirun"):
        rendered(tmp_path, "jobset", framework="mpi")
    template = {"containers": [{"name": "node", "command": ["sleep"]}]}
    with pytest.raises(BadInputError, match=r"^requirements: the command in pod_template"):
        rendered(tmp_path, "jobset", pod_template=template)
    job = parse_job({"module": "train", "image": "image", "framework": "mpi", "requirements": ["rich"]})
    with pytest.raises(BadInputError, match=r"^requirements: pods in which mpirun"):
        check(job, make_plan(job))


def rendered(base: Path, target: str, **fields: Any) -> list[dict[str, Any]]:
    (base / "train.py").write_text(SCRIPT, encoding="utf-8")
    job = parse_job({"script": "train.py", "image": "image", **fields})
    return render(make_request(job, read_sources(job, base)), target)
