"""A function whose source is shipped returns the same text in the ranks, whatever the layout of its lines is.

Public reports are those about textwrap.dedent of a function's source, for example apache/airflow's `@task.virtualenv`
and KFP's `@dsl.component`: a text or a comment at the beginning of a line makes the source unusable, and indented texts
lose spaces.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.errors import BadInputError
from stepset.functions.definition import source_of
from stepset.functions.source import checked_source
from tests.airflow.conftest import RunDag, WriteDag, _remove_home, airflow_db, run_dag, stepset_home, write_dag
from tests.notebook.conftest import home

__all__ = ["_remove_home", "airflow_db", "home", "run_dag", "stepset_home", "write_dag"]

FUNCTIONS = {
    "text at column 0": '''
        def fit():
            query = """
SELECT *
  FROM t
"""
            return query
''',
    "indented text keeps its spaces": '''
        def fit():
            return """
            SELECT *
                FROM t
            """
''',
    "comment at column 0": """
        def fit():
# a comment
            a = 1
    # another comment
            return a
""",
    "first line of the body is a comment at column 0": """
        def fit():
#!/bin/sh
            return 1
""",
    "text inside a call": '''
        def fit():
            return dict(a=[1,
2, """
            x
y"""], b=(
          3))
''',
    "f-string with nested quotes": '''
        def fit():
            rows = {"a": 1}
            return f"""
{rows['a']!r:>4}
            {f"{rows['a']}" + '|'
            'z'} {{}}
        """
''',
    "f-string that shows its expression": '''
        def fit():
            a = 1
            return f"""{
            a = }
            """
''',
    "continued lines": """
        def fit():
            a = 1 + \\
2 + \\
                3
            return "x\\
            y" "z" \\
   "w", a
""",
    "bytes and raw texts": '''
        def fit():
            return rb"""
        \\d""".decode() + r"""
        \\d
"""
''',
    "nested functions and decorators over several lines": '''
        @same(
            lambda x: (x, ")"),
# a comment
            """
def fit(): wrong
""",
        )
        def fit():
            def inner(
                a=1,
            ):
                """Documentation
at column 0."""
                if a:
                    return inner.__doc__

            return inner()
''',
    "tabs in the text and in the code": '''
        def fit():
        \tx = """
\t\t\ta
        \tb"""
        \tif x:
        \t\treturn x
''',
    "a form feed and line separators in a text": '''
        def fit():
            return """a\x0cb\x1c
            \u2028c\x85
        d"""
''',
    "one line": """
        def fit(): return 1; x = 2
""",
    "annotations and defaults over several lines": '''
        def fit(a: """
int""" = 1, *,
b="""
        b""") -> """
        text""":
            return a, b
''',
    "a documentation text": '''
        def fit():
            """First line.

Second line.
            """
            return fit.__doc__
''',
}
"""Definitions of a function `fit`, whose lines follow `if True:` and a class statement."""

TABS = """
if True:
\tdef fit():
\t\tx = '''
\t\ta
b'''
# comment
\t\treturn x
"""


def same(*_: object) -> Callable[[Any], Any]:
    return lambda function: function


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Returns a function that writes a module, imports it, and returns the function `fit` of the module."""

    def write(text: str) -> Any:
        path = tmp_path / "of_the_test.py"
        path.write_text(text)
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[path.stem] = module
        vars(module)["same"] = same
        spec.loader.exec_module(module)
        return module.fit

    yield write
    sys.modules.pop("of_the_test", None)


def shipped(function: Callable[[], Any]) -> Any:
    """Returns what the shipped source of a function returns."""
    names: dict[str, Any] = {}
    exec(source_of(function), names)
    return names["fit"]()


@pytest.mark.parametrize("body", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_shipped_function_returns_the_same_text(load: Callable[[str], Any], body: str) -> None:
    function = load(f"if True:\n    if True:{body}\n        after = 1\n")
    assert shipped(function) == function()


def test_the_shipped_function_of_a_file_with_tabs_returns_the_same_text(load: Callable[[str], Any]) -> None:
    function = load(TABS)
    assert shipped(function) == function() == "\n\t\ta\nb"


def test_the_source_has_no_decorators_and_no_indentation(load: Callable[[str], Any]) -> None:
    function = load("if True:\n    @same(\n        1,\n    )\n    def fit():\n        return (\n            1)\n")
    assert source_of(function) == "def fit():\n    return (\n        1)\n"


def test_a_layout_that_cannot_be_kept_is_an_error(load: Callable[[str], Any]) -> None:
    # Python accepts both lines of the body: each has three characters and ends in column 16.
    function = load("if True:\n\tdef fit():\n\t \tx = 1\n \t\treturn x\n")
    assert function() == 1
    with pytest.raises(BadInputError, match="the indentation of fit cannot be removed, because its lines mix tabs"):
        source_of(function)


def test_a_file_that_has_changed_is_an_error_instead_of_another_function(
    load: Callable[[str], Any], tmp_path: Path
) -> None:
    function = load("def fit():\n    return 1\n")
    (tmp_path / "of_the_test.py").write_text("import os\n\ndef fit():\n    return 2\n")
    with pytest.raises(BadInputError, match=r"the definition of fit is not in line 1 of .*of_the_test\.py"):
        checked_source(function)


@pytest.mark.local
def test_the_text_arrives_in_the_ranks_of_stepset_run(load: Callable[[str], Any], home: Path) -> None:
    def query() -> str:
        return """
SELECT *
        FROM t  -- {{ ds }} {x}
# not a comment
"""

    assert stepset.run(query, framework="plain", num_nodes=2).result == query()


TASKS = '''
@task.distributed_train(
    framework="plain", num_nodes=2,
    backend="local",
)
def fit():
    # a comment
    text = """
SELECT *
        FROM t  -- {{ ds }}
# not a comment
"""
    return text

fit()
'''


@pytest.mark.airflow
def test_the_text_arrives_in_the_ranks_of_a_decorated_function(run_dag: RunDag, write_dag: WriteDag) -> None:
    path = write_dag("pass")
    start, _, end = path.read_text().partition("    pass\n")
    lines = TASKS.splitlines(keepends=True)
    at_column_0 = ("SELECT", "#", '"""\n')
    path.write_text(
        start
        + "".join(line if line.startswith((*at_column_0, "        FROM")) else f"    {line}" for line in lines)
        + end
    )
    run = run_dag(path)
    assert run.state == "success", run.explained()
    assert json.dumps(run.xcom("fit")) == json.dumps("\nSELECT *\n        FROM t  -- {{ ds }}\n# not a comment\n")


@pytest.mark.airflow
class TestWhatCannotBeShipped:
    """An error when the DAG file is parsed, which names the task and the line."""

    @pytest.mark.parametrize(
        ("function", "words"),
        [
            ("lambda: 1", r"f\.py:3: function: a lambda cannot be shipped; define a function with def"),
            ("partial(print, 1)", "function: partial is not a plain function; define it with def"),
            ("Model().fit", "function: fit is not a plain function; define it with def"),
            ("Model()", "function: Model is not a plain function; define it with def"),
        ],
    )
    def test_is_an_error(self, function: str, words: str) -> None:
        from airflow.sdk import DAG, task

        with DAG("nightly", schedule=None), pytest.raises(ValueError, match=f"DAG 'nightly', task .*{words}"):
            task.distributed_train(num_nodes=2, image="train:1")(of(f"\n\nfit = {function}\n"))

    def test_without_a_file_is_an_error(self) -> None:
        from airflow.sdk import DAG, task

        words = (
            r"DAG 'nightly', task 'fit', f\.py:2: function: the source of fit cannot be read: .*; define it in a file"
        )
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match=words):
            task.distributed_train(num_nodes=2, image="train:1")(of("\ndef fit(): return 1\n"))


def of(text: str) -> Any:
    """Returns `fit` of a module that has no file."""
    from functools import partial

    class Model:
        def fit(self) -> int:
            return 1

        def __call__(self) -> int:
            return 1

    names: dict[str, Any] = {"partial": partial, "Model": Model}
    exec(compile(text, "/nowhere/f.py", "exec"), names)
    return names["fit"]
