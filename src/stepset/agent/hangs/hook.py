"""The hook in each Python process of a rank: reports the stacks of all threads, and torch's collectives, when asked.

The agent writes the source of this module to DIR/hook, as the module `sitecustomize`, and puts DIR/hook in front of
PYTHONPATH. docs/design/hangs.md describes how the agent asks. The module imports only modules that are part of the
interpreter. Its syntax is that of Python 2.7, as programs may start any Python. It is short, because an interpreter
without a compiled copy compiles the module at each start.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIGNAL = 50
"""The real-time signal that requests the stacks. Its number is the same with glibc and musl."""
STACKS = "stepset-stacks-"
"""The name of the file with the stacks begins with this. The identifier of the main thread follows."""


class Hook(object):
    """The files of this process, and the thread that reports collectives.

    Args:
        directory: the directory of this file.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.open_files: list[tuple[int, int]] = []  # each file: its descriptor and inode
        self._has_thread = False
        self._start: Any = None

    def register(self) -> None:
        """Makes Python's signal handler, which needs no GIL, write the stacks to a file without a name on disk."""
        import _thread
        import faulthandler

        file = self.create(STACKS + "%x" % _thread.get_ident())
        faulthandler.register(SIGNAL, file, all_threads=True, chain=False)

    def after_fork(self) -> None:
        """Replaces the files of the parent. Each process needs its own."""
        try:
            for fd, inode in self.open_files:
                if self.is_open(fd, inode):
                    import posix

                    posix.close(fd)
            self.open_files = []
            self.register()
            if self._has_thread:
                self.start_thread()
        except Exception:  # noqa: BLE001 - no error may reach the program
            pass

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Starts the thread when torch.distributed is imported. Finds no module (`importlib.abc.MetaPathFinder`)."""
        if name == "torch.distributed" and not self._has_thread:
            try:
                self._has_thread = True
                sys.meta_path.remove(self)
                self.start_thread()
            except Exception:  # noqa: BLE001 - no error may reach the program
                pass

    def start_thread(self) -> None:
        """Starts the thread that reports collectives, in a module that most programs do not need."""
        if not self._start:
            path = self._directory + "/collectives.py"
            module: dict[str, Any] = {}
            with open(path) as file:
                exec(compile(file.read(), path, "exec"), module)
            self._start = module["start"]
        self._start(self)

    def create(self, name: str) -> int:
        """Creates a file without a name on disk, and returns its descriptor."""
        import posix

        append = posix.O_RDWR | posix.O_APPEND | posix.O_CLOEXEC
        try:
            made = posix.memfd_create(name, 1)  # MFD_CLOEXEC
            file = posix.open("/proc/self/fd/%d" % made, append)
            posix.close(made)
        except (AttributeError, OSError):  # for example, conda's Python is built for a C library without memfd_create
            path = "%s/%s-%d" % (self._directory, name, posix.getpid())
            file = posix.open(path, append | posix.O_CREAT | posix.O_EXCL, 0o600)
            posix.unlink(path)
        self.open_files.append((file, posix.fstat(file).st_ino))
        return file

    def is_open(self, fd: int, inode: int) -> bool:
        """Returns whether a descriptor is still that of the hook. A program may close all files."""
        import posix

        try:
            return posix.fstat(fd).st_ino == inode
        except OSError:
            return False


def install() -> None:
    """Installs the hook in this process, unless another run has installed one, and runs the next `sitecustomize`."""
    directory = __file__.rpartition("/")[0]
    own = sys.modules.pop(__name__)
    sys.path[:] = [path for path in sys.path if path != directory]
    sys.path_importer_cache.pop(directory, None)
    try:
        if not hasattr(sys, "_stepset_hook"):
            import posix

            hook = sys._stepset_hook = Hook(directory)  # type: ignore[attr-defined]
            hook.register()
            posix.register_at_fork(after_in_child=hook.after_fork)
            sys.meta_path.insert(0, hook)
    except Exception:  # noqa: BLE001 - no error may reach the program
        pass
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if getattr(error, "name", None) not in (None, "sitecustomize"):
            raise
        sys.modules[__name__] = own


if __name__ == "sitecustomize":
    install()
