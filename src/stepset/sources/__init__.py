"""The job's own files: script and code directory, read before the job is run or rendered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stepset.errors import BadInputError
from stepset.plan.code import script_in_code
from stepset.sources.archive import CODE_LIMIT as CODE_LIMIT
from stepset.sources.archive import pack
from stepset.sources.code_files import CodeFiles, find_code_files
from stepset.sources.ignore import OWN_FILE
from stepset.sources.mpi_script import check_mpi_script
from stepset.sources.regular_file import ChangedError, read_regular
from stepset.sources.secret_files import holds_secret, secret_by_name
from stepset.spec.job import TrainingJob


@dataclass(frozen=True)
class Sources:
    """The files that are shipped with a job.

    Args:
        base_dir: the directory the job's paths are relative to.
        code_dir: the code's directory on this machine: `code`, or the script's directory.
        script: the script's text, if it is shipped alone.
        archive: the packed `code` directory (tar.gz), the same bytes for the same files.
        files: path and bytes of each file of the archive, the largest first.
        notes: notes for the user, shown with the run from its start.
    """

    base_dir: Path
    code_dir: Path
    script: bytes | None = None
    archive: bytes | None = None
    files: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()


def absolute(path: Path) -> Path:
    """Returns an absolute path; raises BadInputError for a relative one if the current directory was deleted."""
    try:
        return path.absolute()
    except FileNotFoundError as error:
        directory = os.environ.get("PWD", "")
        with suppress(OSError):
            directory = str(Path("/proc/self/cwd").readlink()).removesuffix(" (deleted)")
        raise BadInputError(
            f"{directory}: the current directory was deleted; change to an existing directory, and try again"
        ) from error


def read_sources(job: TrainingJob, base_dir: Path | None = None) -> Sources:
    """Reads the script or packs the code directory of a job.

    Args:
        base_dir: the directory that the job's paths are relative to; default: the current directory.

    Raises:
        BadInputError: a file is missing, unreadable or cannot be shipped, the code is over the limit, or the name
            and the content of an MPI job's script disagree on whether the script starts the ranks.
    """
    base = absolute(base_dir or Path())
    if job.command is not None:
        check_mpi_script(job, base / (job.code or ""))
    if job.code is not None:
        return _read_code(job, base.resolve(), base.resolve() / job.code)
    if job.script is not None:
        return _read_script(base.resolve(), base.resolve() / job.script)
    # The job has no files, so `base` is not resolved: that would take a tenth of the time of a render.
    if job.function is not None:
        _check_size("function", "the program", len(job.function.encode()))
    return Sources(base, base)


def list_code(job: TrainingJob, base_dir: Path) -> CodeFiles:
    """Returns the files of a job's `code` that are shipped, without reading them or checking their total size.

    Raises:
        BadInputError: the directory is missing or unreadable, or contains files that cannot be shipped.
    """
    assert job.code is not None
    directory = base_dir.resolve() / job.code
    with located_errors("code", directory):
        if not directory.is_dir():
            raise _missing("code", "directory", directory)
        return find_code_files(directory)


def _read_code(job: TrainingJob, base: Path, directory: Path) -> Sources:
    code = list_code(job, base)
    with located_errors("code", directory):
        archive = pack(code)
    if job.script is not None and (script := script_in_code(job)) not in code.files:
        with located_errors("script", directory / script):
            if not (directory / script).is_file():
                raise _missing("script", "file", directory / script)
        raise BadInputError(
            f"script: {job.script} is not among the shipped files of code ({directory});"
            f" give a path inside it that {code.remedy_file} does not exclude, or leave code out"
        )
    return Sources(base, directory, None, archive, tuple(code.largest_first()), ignored_notes(code))


def _read_script(base: Path, path: Path) -> Sources:
    with located_errors("script", path):
        if not path.is_file():
            raise _missing("script", "file", path)
        target = path.resolve()
        _check_size("script", str(path), target.stat().st_size)
        text = read_regular(target, CODE_LIMIT)
        if text is None:
            raise ChangedError(str(path))
    if secret_by_name(path.name) or secret_by_name(target.name) or holds_secret(target.name, text):
        raise BadInputError(
            f"script: {path} looks like credentials, and a script is shipped in a ConfigMap; give a Python file"
        )
    return Sources(base, path.parent, script=text)


def ignored_notes(code: CodeFiles) -> tuple[str, ...]:
    """Returns the note about what the ignore files exclude; empty if that is nothing.

    >>> ignored_notes(CodeFiles(Path("/code"), {}, ".gitignore", ignored_files=1))
    ('code: 1 file is ignored because of .gitignore; `stepset explain --files` lists what is shipped',)
    """
    counts = ((code.ignored_files, "file", "files"), (code.ignored_directories, "directory", "directories"))
    words = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    if not words:
        return ()
    verb = "is" if code.ignored_files + code.ignored_directories == 1 else "are"
    return (
        f"code: {' and '.join(words)} {verb} ignored because of {code.ignore_file};"
        " `stepset explain --files` lists what is shipped",
    )


def _missing(field: str, what: str, path: Path) -> BadInputError:
    return BadInputError(f"{field}: no such {what}: {path}; paths are relative to the job file")


@contextmanager
def located_errors(field: str, path: Path) -> Iterator[None]:
    """Converts an OSError or ChangedError into a BadInputError that names the job file's field."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise BadInputError(
            f"{field}: cannot read {where}: {error.strerror or error}; check the path and its permissions"
        ) from error
    except ChangedError as error:
        raise BadInputError(
            f"{field}: {error} changed while it was read; try again when no program writes to it, or ignore it with"
            f" {OWN_FILE}"
        ) from error


def _check_size(field: str, what: str, size: int) -> None:
    if size > CODE_LIMIT:
        raise BadInputError(f"{field}: {what} has {size} bytes; at most {CODE_LIMIT} can be shipped")
