"""A script is shipped with the modules beside it that it imports."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.rendering import make_request, render
from stepset.sources import CODE_LIMIT, Sources, read_sources, shipped_note
from stepset.sources.siblings import MAX_MODULES, imported_names
from stepset.spec import parse_job
from stepset.targets.request import TARGET_NAMES


def write(base: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def read(base: Path, **job: Any) -> Sources:
    return read_sources(parse_job({"script": "train.py", "image": "image", **job}), base)


def shipped(base: Path) -> list[str]:
    return sorted(name for name, _ in read(base).files)


def unpack(sources: Sources, to: Path) -> None:
    assert sources.archive is not None
    with tarfile.open(fileobj=io.BytesIO(sources.archive), mode="r:gz") as tar:
        # Python 3.13 warns about the missing filter; 3.11.0 does not have filters.
        options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(to, **options)


def test_siblings_are_followed_transitively_and_the_unpacked_script_runs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(
        source,
        {
            "train.py": "import json, model\ndef main():\n    from lib.data import X\n    print(model.Y, X)\nmain()\n",
            "model.py": "try:\n    import fast\nexcept ImportError:\n    from layers import deep\nY = deep.Z\n",
            "layers/deep.py": "from . import wide\nZ = wide.W\n",
            "layers/wide.py": "W = 3\n",
            "layers/unused.py": "",
            "lib/__init__.py": "",
            "lib/data.py": "import util\nX = util.U\n",
            "lib/sub/plugin.py": "",
            "lib/notes.txt": "",
            "lib/__pycache__/data.py": "",
            "util.py": "U = 4\n",
            "other.py": "",
            "json.py": "raise SystemExit('shadows the standard library')\n",
        },
    )
    sources = read(source)
    assert sorted(name for name, _ in sources.files) == [
        "layers/deep.py",
        "layers/wide.py",
        "lib/__init__.py",
        "lib/data.py",
        "lib/sub/plugin.py",
        "model.py",
        "train.py",
        "util.py",
    ]
    unpack(sources, tmp_path / "pod")
    done = subprocess.check_output([sys.executable, "train.py"], cwd=tmp_path / "pod", text=True)
    assert done == "3 4\n"


@pytest.mark.parametrize(
    "text", ["import numpy\n", "from . import util\n", "import (\n", "x = '\\0'\n", "(" * 5000, "import os, json\n"]
)
def test_a_script_without_siblings_is_shipped_alone(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"train.py": text, "util.py": "", "os.py": ""})
    assert read(tmp_path).script == text.encode()
    assert shipped(tmp_path) == ["train.py"]


def test_modules_that_import_each_other_and_the_script_end(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import a", "a.py": "import b, train", "b.py": "import a"})
    assert shipped(tmp_path) == ["a.py", "b.py", "train.py"]


def test_a_linked_sibling_is_shipped_as_a_file_and_a_loop_of_links_ends(tmp_path: Path) -> None:
    write(tmp_path, {"real/util.py": "U = 1", "code/train.py": "import util, lib", "code/lib/__init__.py": ""})
    (tmp_path / "code/util.py").symlink_to("../real/util.py")
    (tmp_path / "code/lib/again").symlink_to(".")
    sources = read(tmp_path, script="code/train.py")
    unpack(sources, tmp_path / "pod")
    assert (tmp_path / "pod/util.py").read_text(encoding="utf-8") == "U = 1"


def test_code_ships_the_directory_instead(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import a", "a.py": "", "other.py": ""})
    assert sorted(name for name, _ in read(tmp_path, code=".").files) == ["a.py", "other.py", "train.py"]


def test_too_large_siblings_are_named_with_the_remedies(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import big"})
    (tmp_path / "big.py").write_bytes(b"# " + os.urandom(CODE_LIMIT + 4096).hex().encode())
    with pytest.raises(BadInputError) as caught:
        read(tmp_path).check_shippable()
    (problem,) = caught.value.problems
    assert "bytes packed; at most" in problem
    assert problem.startswith("script: train.py and the modules beside it that it imports (big.py) have ")
    assert "code: {claim: NAME, path: DIR}" in problem


def test_too_many_modules_are_reported_with_the_package(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import lib", "lib/__init__.py": ""})
    write(tmp_path, {f"lib/m{number}.py": "" for number in range(MAX_MODULES + 1)})
    with pytest.raises(BadInputError, match=r"^script: train.py imports lib beside it, .*; give code: \., or"):
        read(tmp_path).check_shippable()


def test_a_sibling_named_like_credentials_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import util", "id_rsa": "x"})
    (tmp_path / "util.py").symlink_to("id_rsa")
    with pytest.raises(BadInputError, match=r"^script: train.py imports util.py beside it, .* credentials"):
        read(tmp_path).check_shippable()


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_no_target_renders_a_script_whose_siblings_are_too_large(tmp_path: Path, target: str) -> None:
    write(tmp_path, {"train.py": "import big"})
    (tmp_path / "big.py").write_bytes(b"# " + os.urandom(CODE_LIMIT + 4096).hex().encode())
    job = parse_job({"script": "train.py", "image": "image"})
    with pytest.raises(BadInputError, match=r"^script: train.py and the modules beside it that it imports \(big.py\)"):
        render(make_request(job, read_sources(job, tmp_path)), target)


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_every_target_ships_the_siblings(tmp_path: Path, target: str) -> None:
    write(tmp_path, {"train.py": "import a", "a.py": ""})
    job = parse_job({"script": "train.py", "image": "image"})
    objects = render(make_request(job, read_sources(job, tmp_path)), target)
    (code,) = [each for each in objects if each["metadata"]["name"] == "train-code"]
    assert set(code["binaryData"]) == {"code.tar.gz"}


def test_without_the_agent_siblings_are_refused_before_anything_is_created(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import a", "a.py": ""})
    job = parse_job({"framework": "plain", "script": "train.py", "image": "image", "agent": False})
    with pytest.raises(BadInputError, match=r"^script: only stepset's agent unpacks its files \(.*a.py.*\)"):
        render(make_request(job, read_sources(job, tmp_path)), "job")


def test_one_line_states_what_is_shipped(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import a\n", "a.py": ""})
    sources = read(tmp_path)
    assert sources.archive is not None
    assert shipped_note(sources) == (f"ships 2 files of 9 bytes, {len(sources.archive)} bytes packed: train.py, a.py",)


def test_relative_imports_are_resolved_in_their_package() -> None:
    text = b"from .. import a\nfrom ..b import c\nfrom ... import d\n"
    assert imported_names(text, ("x", "y")) == {("x", "a"), ("x", "b", "c")}
