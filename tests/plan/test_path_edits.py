"""A script that extends `sys.path`: its modules are shipped, or the error names them before a run on a cluster."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepset.errors import BadInputError
from stepset.sources import shipped_note
from stepset.sources.path_edits import path_edits
from tests.plan.test_siblings import read, shipped, unpack, write

HERE = "os.path.dirname(os.path.abspath(__file__))"


@pytest.mark.parametrize(
    ("text", "directory", "from_current"),
    [
        ("sys.path.append('..')", "..", True),
        ("sys.path.insert(0, '../lib')", "../lib", True),
        ("sys.path.insert(0, os.getcwd())", ".", True),
        ("sys.path.append(str(Path.cwd() / 'lib'))", "lib", True),
        ("sys.path.append(os.path.abspath('lib'))", "lib", True),
        (f"sys.path.append(os.path.join({HERE}, '..', 'lib'))", "../lib", False),
        (f"HERE = {HERE}\nROOT = os.path.dirname(HERE)\nsys.path.append(ROOT)", "..", False),
        (f"HERE = {HERE}\nsys.path += [HERE + '/lib', HERE]", "lib", False),
        (f"sys.path.append(f'{{{HERE}}}/lib')", "lib", False),
        ("sys.path.append(str(Path(__file__).resolve().parent.parent))", "..", False),
        ("sys.path.insert(0, str(Path(__file__).parents[1] / 'lib'))", "../lib", False),
        ("sys.path.extend([Path(__file__).parent.joinpath('lib').as_posix()])", "lib", False),
        ("def main():\n    site.addsitedir(os.path.join(os.path.dirname(__file__), os.pardir))", "..", False),
        ("sys.path.append('/opt/lib')", "/opt/lib", False),
    ],
)  # fmt: skip
def test_the_path_of_an_added_directory_is_that_of_python(
    tmp_path: Path, text: str, directory: str, from_current: bool
) -> None:
    file = tmp_path / "train.py"
    found = path_edits(ast.parse(text), file, tmp_path)
    expected = Path(os.path.normpath(tmp_path / directory))
    assert next(iter(found.directories.items())) == (expected, from_current)
    assert not found.unknown
    program = "import os, site, sys\nfrom pathlib import Path\nsys.path = []\n" + text
    program += "\nif 'main' in dir(): site.addsitedir = sys.path.append; main()\n"
    file.write_text(program + "print(os.path.realpath(sys.path[0]))")
    done = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"{expected.resolve()}\n", "the expectation is not that of Python"


@pytest.mark.parametrize(
    "text",
    [
        "sys.path.append(os.environ['LIB'])",
        "sys.path.append(lib)",
        "sys.path.append(Path(__file__).parents[99])",
        "x = __file__\nx = find()\nsys.path.append(x)",
        "sys.path.append(" + "(" * 60 + "'a'" + " + 'a')" * 60 + ")",
        "sys.path.append('/'.join(['a', 'b']))",
    ],
)
def test_another_directory_is_unknown(tmp_path: Path, text: str) -> None:
    found = path_edits(ast.parse(text), tmp_path / "train.py", tmp_path)
    assert (found.directories, found.unknown) == ({}, True)


@pytest.mark.parametrize("text", ["sys.path", "print(sys.path)", "path.append('..')", "sys.path.remove('..')"])
def test_other_statements_add_nothing(tmp_path: Path, text: str) -> None:
    found = path_edits(ast.parse(text), tmp_path / "train.py", tmp_path)
    assert (found.directories, found.unknown) == ({}, False)


def test_modules_of_added_directories_below_the_script_are_shipped_and_imported(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(
        source,
        {
            "train.py": (
                "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib'))\n"
                "import common\nfrom nets.deep import Z\nprint(common.Y, Z)\n"
            ),
            "lib/common.py": "import util\nY = util.U\n",
            "lib/util.py": "U = 1\n",
            "lib/nets/__init__.py": "",
            "lib/nets/deep.py": "from .wide import Z\n",
            "lib/nets/wide.py": "Z = 2\n",
            "lib/unused.py": "",
        },
    )
    names = [
        "lib/common.py",
        "lib/nets/__init__.py",
        "lib/nets/deep.py",
        "lib/nets/wide.py",
        "lib/util.py",
        "train.py",
    ]
    assert shipped(source) == names
    unpack(read(source), tmp_path / "pod")
    done = subprocess.check_output([sys.executable, "train.py"], cwd=tmp_path / "pod", text=True)
    assert done == "1 2\n"


def test_a_module_that_extends_the_path_finds_modules_for_the_script(tmp_path: Path) -> None:
    module = "import sys\nfrom pathlib import Path\nsys.path.append(str(Path(__file__).parent / 'lib'))\n"
    write(tmp_path, {"train.py": "import common, setup_path\n", "setup_path.py": module, "lib/common.py": ""})
    assert shipped(tmp_path) == ["lib/common.py", "setup_path.py", "train.py"]


@pytest.mark.parametrize(
    ("edit", "change"),
    [
        ("import sys\nsys.path.append('..')\n", "write the directory relative to __file__, and "),
        ("import sys, pathlib\nsys.path.append(str(pathlib.Path(__file__).parent.parent))\n", ""),
    ],
)
def test_modules_outside_of_the_scripts_directory_are_named_before_a_run_on_a_cluster(
    tmp_path: Path, edit: str, change: str
) -> None:
    project = tmp_path / "project"
    write(project, {"scripts/train.py": f"{edit}import common\nfrom nets import deep\n", "common.py": ""})
    write(project, {"nets/deep.py": ""})
    sources = read(project / "scripts")
    assert sources.notes == ()
    with pytest.raises(BadInputError) as caught:
        sources.check_shippable()
    assert caught.value.problems == (
        f"script: train.py imports common, nets from {project}, which it adds to sys.path and which is not shipped with"
        f" it; {change}give code: .. with script: scripts/train.py, or install these modules in the image",
    )
    read(project / "scripts", code="..", script="scripts/train.py").check_shippable()


def test_a_relative_directory_must_be_the_same_in_the_pods(tmp_path: Path) -> None:
    write(
        tmp_path, {"src/train.py": "import sys\nsys.path.append('src/lib')\nimport common\n", "src/lib/common.py": ""}
    )
    with pytest.raises(
        BadInputError, match=r"imports common from .*src/lib, .*; give code: \. with script: src/train.py"
    ):
        read(tmp_path, script="src/train.py").check_shippable()


def test_imports_that_are_found_nowhere_are_noted_if_a_directory_is_not_known(tmp_path: Path) -> None:
    imports = "import os, sys, pytest, beside, found_nowhere, also.nowhere\n"
    write(tmp_path, {"train.py": f"{imports}sys.path.append(os.environ['LIB'])\n", "beside.py": ""})
    _, note = shipped_note(read(tmp_path))
    assert note.startswith("script: also, found_nowhere are imported, but found neither beside the script nor on this")
    write(tmp_path, {"train.py": imports})
    assert len(shipped_note(read(tmp_path))) == 1
