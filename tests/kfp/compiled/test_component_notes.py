"""`distribute` reports what the function of a component needs, but its ranks on a cluster do not have."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl, local

from stepset_kfp import distribute

FILE = """\
from kfp import dsl

@dsl.component({arguments}install_kfp_package=False)
def fit(data: str) -> str:
    import json
    import mylib
    from package.part import value

    return data
"""

OWN = 'base_image="registry.example/own:1", '


def notes(directory: Path, log: pytest.LogCaptureFixture, arguments: str = OWN, **settings: Any) -> list[str]:
    """Compiles a pipeline with a component of a new file, and returns the warnings about the training pods."""
    path = directory / "pipeline.py"
    path.write_text(FILE.format(arguments=arguments))
    spec = importlib.util.spec_from_file_location("pipeline_with_modules", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    log.clear()
    many = distribute(module.fit, shared_dir="/mnt", **settings)
    assert log.messages == []

    @dsl.pipeline(name="notes")
    def pipeline() -> None:
        many(data="a")

    return [text for text in log.messages if "the function imports" in text or "the training pods use" in text]


def test_modules_beside_the_pipeline_file_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mylib.py").touch()
    (tmp_path / "json.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    assert notes(tmp_path, caplog) == [
        f"task fit: the function imports mylib, package from {tmp_path}; a component contains only the source of its"
        " function, so the image must contain the modules, or embed them with"
        " @dsl.component(embedded_artifact_path=DIR)"
    ]
    (text,) = notes(tmp_path, caplog, name="digits")
    assert text.startswith("task fit (digits): the function imports")
    assert notes(tmp_path, caplog, backend="local") == []


def test_modules_that_are_installed_or_embedded_are_not_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert notes(tmp_path, caplog) == []
    (tmp_path / "mylib.py").touch()
    assert notes(tmp_path, caplog, arguments=f'{OWN}embedded_artifact_path="{tmp_path / "mylib.py"}", ') == []


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ('packages_to_install=["MyLib==1.0"], ', {}),
        ('packages_to_install=["numpy", "git+https://git.example/team/mylib.git"], ', {}),
        ("", {"requirements": ["tools @ https://files.example/mylib-1.0-py3-none-any.whl"]}),
    ],
)
def test_modules_of_installed_packages_are_not_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, arguments: str, settings: dict[str, Any]
) -> None:
    (tmp_path / "mylib.py").touch()
    assert notes(tmp_path, caplog, f"{OWN}{arguments}", **settings) == []
    assert len(notes(tmp_path, caplog, f'{OWN}packages_to_install=["mylib-tools"], ')) == 1


def test_modules_are_not_reported_for_the_local_runner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mylib.py").touch()
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "out"))
    assert notes(tmp_path, caplog) == []


@pytest.mark.filterwarnings("ignore:The default base_image:FutureWarning")
def test_an_image_without_pytorch_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (text,) = notes(tmp_path, caplog, arguments="")
    assert text == (
        "task fit: the training pods use the image python:3.11, which may not contain PyTorch; set base_image of"
        " @dsl.component to an image with PyTorch and KFP, and install_kfp_package=False (a local run needs no image)"
    )
    assert notes(tmp_path, caplog, arguments="", image="registry.example/own:1") == []
    assert notes(tmp_path, caplog, arguments="", framework="plain") == []
    assert notes(tmp_path, caplog, arguments="", backend="local") == []


@pytest.mark.parametrize(
    ("packages", "reported"),
    [
        (["numpy", "scikit_learn>=1", "pandas; python_version>'3'"], True),
        (["torch==2.9.0"], False),
        (["numpy", "lightning"], False),
        (["accelerate; python_version>'3'"], False),
        (["numpy @ https://files.example/torch-2.9.0-cp311-none-any.whl"], False),
        (["team-models"], False),
    ],
)
def test_a_package_may_install_pytorch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, packages: list[str], reported: bool
) -> None:
    python = 'base_image="docker.io/library/python:3.12", '
    assert len(notes(tmp_path, caplog, arguments=f"{python}packages_to_install={packages}, ")) == reported
    assert len(notes(tmp_path, caplog, arguments=python, requirements=packages)) == reported
