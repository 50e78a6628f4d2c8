"""Notes about a component whose function is to run in every rank."""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepset.functions.used_names import captured_names
from stepset.sources.siblings import imported_names

if TYPE_CHECKING:
    from kfp.dsl.base_component import BaseComponent

_PYTHON = re.compile(r"(docker\.io/)?(library/)?python(:[\w.-]+)?")
"""The names of the official images of Python."""
_QUOTED = re.compile(r"""(?<=\s)(["'])(?![$-])(.+?)\1(?=\s)""")
"""A package in the script that installs the packages of a component (kfp 2.15.2 to 2.17.0, component_factory.py)."""
_WITHOUT_PYTORCH = frozenset(
    {
        "boto3",
        "google-cloud-storage",
        "kfp",
        "kfp-kubernetes",
        "matplotlib",
        "minio",
        "numpy",
        "pandas",
        "pyarrow",
        "pyyaml",
        "requests",
        "s3fs",
        "scikit-learn",
        "scipy",
        "tqdm",
        "typing-extensions",
    }
)
"""Packages that do not install PyTorch. Any other package, or a URL, may install PyTorch."""


def captured_notes(source: str) -> Iterator[str]:
    """Yields a note if the function of a component uses names that its ranks do not have.

    Args:
        source: the source that KFP runs, which is the last argument of the component's command. The source begins with
            `from kfp.dsl import *` and `from typing import *`.
    """
    from kfp import dsl

    try:
        captured = [each for each in captured_names(source) if each not in {*dsl.__all__, *typing.__all__}]
    except SyntaxError:  # the command of another version of KFP
        return
    if captured:
        yield (
            f"the function uses names that it does not define: {', '.join(captured)}; a component contains only the"
            f" source of its function, so import or define {'it' if len(captured) == 1 else 'them'} inside the function"
        )


def pod_notes(component: BaseComponent, command: Sequence[str], settings: Mapping[str, Any]) -> Iterator[str]:
    """Yields the notes about what the training pods of a cluster may lack.

    Args:
        command: the command of the component. The last argument is the source that KFP runs.
        settings: the settings of `distribute`, including their defaults.
    """
    *before, source = command
    packages = [*_installed(before), *map(str, settings.get("requirements") or ())]
    yield from _own_module_notes(component, source, packages)
    yield from _image_notes(str(settings["image"]), settings.get("framework"), packages)


def _own_module_notes(component: BaseComponent, source: str, packages: Sequence[str]) -> Iterator[str]:
    """Yields a note if the function imports modules that are files beside the file of the component.

    A component does not contain these files, unless the author embeds files (`embedded_artifact_path`). The image may
    contain the modules. Modules that an installed package may contain are not reported.
    """
    code = getattr(getattr(component, "python_func", None), "__code__", None)
    if code is None or "__KFP_EMBEDDED_ARCHIVE_B64" in source:  # kfp 2.15.2 to 2.17.0, kfp/dsl/component_factory.py
        return
    directory = Path(code.co_filename).parent
    modules = {name[0] for name in imported_names(source.encode(), ())} - sys.stdlib_module_names
    if own := sorted(each for each in modules if _is_module(directory, each) and not _is_among(each, packages)):
        yield (
            f"the function imports {', '.join(own)} from {directory}; a component contains only the source of its"
            f" function, so the image must contain the module{'' if len(own) == 1 else 's'}, or embed"
            f" {'it' if len(own) == 1 else 'them'} with @dsl.component(embedded_artifact_path=DIR)"
        )


def _image_notes(image: str, framework: Any, packages: Iterable[str]) -> Iterator[str]:
    """Yields a note if the training pods need PyTorch, but their image contains only Python.

    KFP's default image is such an image. There is no note if one of the installed packages may install PyTorch.
    """
    kind = framework.get("kind") if isinstance(framework, Mapping) else framework
    if kind in (None, "torch") and _PYTHON.fullmatch(image) and not any(map(_may_install_pytorch, packages)):
        yield (
            f"the training pods use the image {image}, which may not contain PyTorch; set base_image of @dsl.component"
            " to an image with PyTorch and KFP, and install_kfp_package=False (a local run needs no image)"
        )


def _installed(command: Iterable[str]) -> Iterator[str]:
    """Yields the packages that the command of a component installs, as the author wrote them."""
    for word in map(str, command):
        if "pip install" in word:
            yield from (found[2] for found in _QUOTED.finditer(word))


def _may_install_pytorch(package: str) -> bool:
    """Returns whether the installation of a package may install PyTorch.

    >>> [_may_install_pytorch(each) for each in ("numpy>=2", "lightning", "numpy @ https://files.example/a.whl")]
    [False, True, True]
    """
    name = re.match(r"[\w.-]*", package.strip())
    return "/" in package or name is None or re.sub("[-_.]+", "-", name[0].lower()) not in _WITHOUT_PYTORCH


def _is_among(module: str, packages: Iterable[str]) -> bool:
    """Returns whether a package or a URL contains the name of a module.

    >>> _is_among("my_lib", ["numpy", "my-lib==1.0"]), _is_among("lib", ["my-lib==1.0"])
    (True, False)
    """
    name = re.escape(module).replace("_", "[-_.]")
    return any(re.search(rf"(?<![\w-]){name}(?!\w|-[a-z])", each, re.IGNORECASE) for each in packages)


def _is_module(directory: Path, name: str) -> bool:
    return (directory / f"{name}.py").is_file() or (directory / name / "__init__.py").is_file()
