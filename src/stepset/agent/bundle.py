"""The importer of the modules in the agent's file. It can also write a compiled copy of the file.

built/start.py runs this module and calls `install`.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType, TracebackType

_PACKAGES = ("stepset", "stepset.agent", "stepset.agent.hangs")


class Bundle:
    """Imports the modules that an agent's file contains.

    Args:
        path: the path of the file.
        read_sources: a function that returns a mapping from the name of each module to its source.
        codes: a mapping from the name of each module to its marshalled code. Empty if the file is not compiled.
    """

    def __init__(self, path: str, read_sources: Callable[[], dict[str, str]], codes: dict[str, bytes]) -> None:
        self.path = path
        self._read_sources = read_sources
        self._codes = codes
        self._compiled: dict[str, CodeType] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Finds a module. Implements `find_spec` of `importlib.abc.MetaPathFinder`."""
        if name in _PACKAGES or (name.startswith("stepset.") and name in (self._codes or self._read_sources())):
            # This is importlib.machinery.ModuleSpec. An import of importlib would take additional time.
            spec: ModuleSpec = type(sys.__spec__)(name, self, is_package=name in _PACKAGES)  # type: ignore[arg-type]
            return spec
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leaves the creation of the module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        if name not in _PACKAGES:
            exec(marshal.loads(self._codes[name]) if self._codes else self.compile(name), module.__dict__)

    def compile(self, name: str) -> CodeType:
        if name not in self._compiled:
            self._compiled[name] = compile(self._read_sources()[name], name.replace(".", "/") + ".py", "exec")
        return self._compiled[name]

    def get_source(self, name: str) -> str | None:
        """Returns the source of a module, for tracebacks."""
        return self._read_sources().get(name)

    def compiled(self, directory: str) -> str:
        """Returns the path of a compiled copy, which starts faster. If no copy can be written, returns the file's path.

        If Python's cache directory beside the file is not writable, the copy is in `directory`.
        """
        import importlib.util

        if self.path.endswith(".pyc"):
            return self.path
        # The optimization tag distinguishes the copy from a file that Python itself writes there, for example when pip
        # installs the package.
        beside = importlib.util.cache_from_source(self.path, optimization="stepset")
        try:
            head = self._head()
            with open(beside, "rb") as file:
                if file.read(len(head)) == head:
                    return beside
        except OSError:
            pass
        allowed = not os.environ.get("PYTHONDONTWRITEBYTECODE")
        # Other users may run the copy in Python's cache directory. The mode does not allow them to change this copy.
        for place, mode in (*([(beside, 0o644)] if allowed else []), (os.path.join(directory, "agent.pyc"), 0o600)):
            try:
                self._write_compiled(place, mode)
            except OSError:
                continue
            return place
        return self.path

    def _head(self) -> bytes:
        """Returns the first bytes of the copy, which identify the versions of Python and of the file (PEP 552)."""
        from importlib.util import MAGIC_NUMBER

        about = os.stat(self.path)
        numbers = (0, int(about.st_mtime), about.st_size)
        return MAGIC_NUMBER + b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers)

    def _write_compiled(self, place: str, mode: int) -> None:
        """Writes the compiled copy: the code of the file, with the compiled modules as the value of `codes`."""
        with open(self.path, encoding="utf-8") as file:
            code = compile(file.read(), self.path, "exec")
        modules = marshal.dumps({name: marshal.dumps(self.compile(name)) for name in self._read_sources()})
        constants = tuple(modules if isinstance(value, bytes) else value for value in code.co_consts)
        os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
        new = f"{place}.{os.getpid()}"  # other agents may write the same file
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as output:
            output.write(self._head() + marshal.dumps(code.replace(co_consts=constants)))
        os.replace(new, place)


def install(path: str, read_sources: Callable[[], dict[str, str]], codes: dict[str, bytes]) -> Bundle:
    """Makes the modules of a built file importable."""
    bundle = Bundle(os.path.abspath(path), read_sources, codes)
    sys.meta_path.insert(0, bundle)
    sys.excepthook = _print_traceback
    return bundle


def _print_traceback(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Prints a traceback with source lines. By default, Python before 3.13 looks for source lines in files."""
    from traceback import print_exception

    print_exception(kind, error, traceback)
