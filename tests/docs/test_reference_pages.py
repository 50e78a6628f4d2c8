"""docs/reference contains the help texts of the commands, and the docstrings of the public API.

tests/airflow and tests/kfp check the pages of the other packages.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.api_pages import main, markdown
from tools.cli_reference import PAGE, page

from stepset.cli.app import build


def test_the_page_of_the_commands_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


def test_each_command_has_a_section_with_its_options() -> None:
    sections = page().split("\n## ")
    assert [section.splitlines()[0] for section in sections[2:]] == [f"stepset {name}" for name in build().commands]
    assert all("\n  -h, --help " in section for section in sections[1:])


def test_the_page_of_stepset_is_current() -> None:
    assert main(["--check"]) == 0


def test_a_page_that_is_not_current_fails_with_a_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], tmp_path) == 0
    path = tmp_path / "stepset.md"
    path.write_text(path.read_text("utf-8").replace("Runs a job and waits", "Starts a job and waits"))
    assert main(["--check"], tmp_path) == 1
    assert "\n-Starts a job and waits until the run has finished.\n" in capsys.readouterr().err


class TestMarkdown:
    def test_arguments_are_a_list_with_their_names_as_code(self) -> None:
        text = (
            "Runs.\n\nArgs:\n    a, b: both,\n        of them: now.\n    c: a number.\n\nReturns:\n    A\n    status."
        )
        assert markdown(text) == (
            "Runs.\n\n**Arguments**\n\n- `a`, `b`: both, of them: now.\n- `c`: a number.\n\n**Returns**\n\nA status."
        )

    def test_names_may_continue_on_the_next_line(self) -> None:
        assert markdown("Args:\n    a, b,\n    c: fields.") == "**Arguments**\n\n- `a`, `b`, `c`: fields."

    def test_examples_are_blocks(self) -> None:
        assert markdown("Adds.\n\n    import stepset\n\n>>> 1 + 1\n2") == (
            "Adds.\n\n```python\nimport stepset\n```\n\n```pycon\n>>> 1 + 1\n2\n```"
        )
