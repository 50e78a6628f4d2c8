"""`$$` in commands and variables becomes `$`, as in Kubernetes. A note says so, and explain shows the final values.

Without the note, a password that contains `$$` is silently a wrong password.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepset
from stepset.frameworks import make_plan
from stepset.plan.expand import expand
from stepset.plan.explain import explain_command, explain_plan
from stepset.spec import parse_job
from stepset.targets.names import PodNames

NOTE = "Kubernetes and local runs replace '$$' by '$'; write '$$$$' for '$$'"
DOCS = Path(__file__).parents[2] / "docs"


def notes_of(**job: Any) -> list[str]:
    return [note for note in make_plan(parse_job({"framework": "plain", **job})).notes if "'$$'" in note]


@pytest.mark.parametrize(
    ("job", "place"),
    [
        ({"script": "a.py", "args": ["--password", "pa$$word"]}, "args[1]"),
        ({"script": "a.py", "env": {"PASSWORD": "pa$$word"}}, "env.PASSWORD"),
        ({"script": "a.py", "env": {"P": {"value": "$$", "override": True}}}, "env.P"),
        ({"script": "a.py", "env": {"P": "a$$$$b"}}, "env.P"),
        ({"command": ["sh", "-c", "echo $$"]}, "command[2]"),
        ({"script": "a.py", "roles": [{"name": "x", "image": "i", "command": ["a$$"]}]}, "roles[0].command[0]"),
        ({"script": "a.py", "roles": [{"name": "x", "image": "i", "env": {"A": "$$"}}]}, "roles[0].env.A"),
        (
            {
                "script": "a.py",
                "framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2, "rdzv_id": "a$$b"}},
            },
            "framework.elastic.rdzv_id",
        ),
        (
            {"script": "a.py", "pod_template": {"spec": {"containers": [{"name": "node", "args": ["$$"]}]}}},
            "pod_template.spec.containers[0].args[0]",
        ),
    ],
)
def test_a_note_names_the_place(job: dict[str, Any], place: str) -> None:
    (note,) = notes_of(**job)
    assert note.startswith(f"{place}: {NOTE}")
    assert "pa$" not in note, "a password is not printed"


@pytest.mark.parametrize("text", ["$", "a$b", "$HOME", "$(HOME)", "$$(HOME)", "100 $ $", ""])
def test_there_is_no_note_for_other_texts(text: str) -> None:
    assert notes_of(script="a.py", args=[text], env={"A": text}) == []


def test_a_note_about_many_places_is_short() -> None:
    (note,) = notes_of(script="a.py", args=["$$"] * 100)
    assert note.startswith(f"args[0], args[1], args[2], args[3], args[4] and 95 more: {NOTE}")


@given(st.text(st.sampled_from("$()AB x"), max_size=12), st.text(st.sampled_from("$()AB x"), max_size=12))
def test_explain_shows_what_the_process_gets(word: str, value: str) -> None:
    job = parse_job({"script": "a.py", "framework": "plain", "args": [word], "env": {"A": "1", "B": value}})
    plan = make_plan(job)
    names = PodNames(plan, "run", "run")
    shown = {row.variable: row.value for row in explain_plan(plan, names)}
    assert shown["B"] == expand(value, {"A": "1"})
    assert explain_command(plan.groups[0], names)[-1] == expand(word, {"A": "1", "B": shown["B"]})


def test_a_reference_to_a_secret_is_shown_without_its_value() -> None:
    job = parse_job(
        {
            "script": "a.py",
            "framework": "plain",
            "env": {"TOKEN": {"secret": "hub", "key": "token"}, "URL": "https://u:$(TOKEN)@hub/$$x"},
        }
    )
    plan = make_plan(job)
    shown = {row.variable: row.value for row in explain_plan(plan, PodNames(plan, "run", "run"))}
    assert shown["URL"] == "https://u:<secret hub, key token>@hub/$x"


@pytest.mark.local
def test_the_command_line_and_a_local_run_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import json, os, sys\n"
        "json.dump([sys.argv[1], os.environ['P']], open(os.environ['STEPSET_RESULT_FILE'], 'w'))\n"
    )
    job = {"framework": "plain", "script": "train.py", "args": ["pa$$word"], "env": {"P": "a$$$$b$$(P)$(STEPSET_JOB)"}}
    (tmp_path / "job.json").write_text(json.dumps(job))

    def stepset_says(*words: str) -> str:
        command = [sys.executable, "-m", "stepset", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert f"note: args[0], env.P: {NOTE}" in stepset_says("validate", "job.json")
    explained = json.loads(stepset_says("explain", "job.json", "-o", "json"))
    (group,) = explained["groups"]
    (shown,) = [each["value"] for each in group["env"] if each["variable"] == "P"]
    assert any(note.startswith("args[0], env.P:") for note in explained["notes"])
    assert stepset.run(tmp_path / "job.json").result == [group["command"][-1], shown] == ["pa$word", "a$$b$(P)train"]


def test_the_page_states_the_rule_beside_the_fields() -> None:
    page = (DOCS / "job-file.md").read_text(encoding="utf-8")
    assert "and `$$` with `$`" in page
    (args,) = [line for line in page.splitlines() if line.startswith("| `args` |") and "script, module" in line]
    assert "`$$`" in args
    (value,) = [
        line for line in page.split("## `env`: a plain value")[1].splitlines() if line.startswith("| `value` |")
    ]
    assert "write `$$$$`" in value
