"""Reads the script or the code directory of a job before the job is run or rendered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from stepset.errors import BadInputError
from stepset.plan.code import script_in_code
from stepset.regular_files import script_remedy
from stepset.sources.archive import CODE_LIMIT as CODE_LIMIT
from stepset.sources.archive import LARGE_CODE, UNPACKED_LIMIT, CodeTooLargeError, compress, largest, pack
from stepset.sources.code_files import CodeFile, CodeFiles, find_code_files, shown
from stepset.sources.ignore import OWN_FILE
from stepset.sources.launch_script import check_launch_script
from stepset.sources.module_notes import import_path_notes, module_notes
from stepset.sources.regular_file import ChangedError, read_regular
from stepset.sources.requirements import NO_REQUIREMENTS, Requirements, job_requirements, requirement_notes
from stepset.sources.script_syntax import script_notes
from stepset.sources.secret_files import holds_secret, secret_by_name
from stepset.sources.siblings import find_siblings
from stepset.spec.job import TrainingJob

_SHOWN = 5
"""The maximum number of file names in the note about shipped files."""


@dataclass(frozen=True)
class Sources:
    """The files that are shipped with a job.

    Args:
        base_dir: the directory that relative paths of the job start from.
        code_dir: the directory of the code on this machine. The directory is the job's `code`. If the job has no
            `code`, the directory is the directory of the script.
        script: the content of the script, if only the script is shipped.
        archive: the packed `code` directory as a tar.gz. If the job has no `code`, the archive contains the script and
            the modules that the script imports from its own directory. Equal files result in equal bytes.
        files: the path and the number of bytes of each shipped file, the largest first.
        requirements: the Python packages and the Python version that the job and its script require.
        notes: notes for the user about this job.
        missing: the names of imported modules that stepset finds neither in the directory of the script nor on this
            machine. The tuple is empty unless the script adds to sys.path a directory whose path is unknown before the
            script runs.
        unshippable: the reason why the files cannot be shipped, or "" if they can be shipped. A local run ships no
            files.
    """

    base_dir: Path
    code_dir: Path
    script: bytes | None = None
    archive: bytes | None = None
    files: tuple[tuple[str, int], ...] = ()
    requirements: Requirements = NO_REQUIREMENTS
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unshippable: str = ""

    def check_shippable(self) -> None:
        """Raises BadInputError if the files cannot be shipped."""
        if self.unshippable:
            raise BadInputError(self.unshippable)


def absolute(path: Path) -> Path:
    """Returns an absolute path. Raises BadInputError for a relative path if the current directory was deleted."""
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
    """Reads the script of a job, or packs the job's code directory.

    Also reads the requirements of the job and of its script. The notes report a syntax error of the
    script, and a script that calls nothing.

    Args:
        base_dir: the directory that relative paths of the job start from. Default: the current directory.

    Raises:
        BadInputError: a file is missing, is unreadable or has a type that cannot be shipped. Also raised if a
            requirement is invalid. For an MPI job, also raised if the content of the script does not fit the name of
            the script (`check_launch_script`).
    """
    base = absolute(base_dir or Path())
    sources, text = _read_files(job, base)
    if job.script is not None and text is not None:
        sources = replace(sources, notes=(*sources.notes, *script_notes(job.script, text)))
    if "PYTHONPATH" not in job.env and job.code_volume is None:
        sources = replace(sources, notes=(*sources.notes, *_module_notes(job, sources, text)))
    required = job_requirements(job, text)
    if not required:
        return sources
    return replace(sources, requirements=required, notes=(*sources.notes, *requirement_notes(job, required)))


def _module_notes(job: TrainingJob, sources: Sources, text: bytes | None) -> tuple[str, ...]:
    """Returns notes about a program that Python probably cannot import."""
    if job.module is not None:
        return module_notes(job.module, sources.code_dir)
    if job.script is None or text is None:
        return ()
    base = sources.base_dir
    top, script = (base, job.script) if job.code_directory is None else (sources.code_dir, script_in_code(job))
    return import_path_notes(top / script, text, top, base)


def find_requirements(job: TrainingJob, base_dir: Path) -> Requirements:
    """Returns the requirements of a job and of the job's script.

    If the script cannot be read, the function returns only the requirements of the job.

    Raises:
        BadInputError: the metadata of the script is invalid.
    """
    text = None
    if job.script is not None and job.code_volume is None:
        path = (
            base_dir / job.script if job.code is None else base_dir / (job.code_directory or "") / script_in_code(job)
        )
        with suppress(OSError, ChangedError):
            text = read_regular(path.resolve(), UNPACKED_LIMIT)
    return job_requirements(job, text)


def _read_files(job: TrainingJob, base: Path) -> tuple[Sources, bytes | None]:
    """Returns the sources without requirements, and the content of the job's script.

    The content is None if there is no script or the script is on a volume.
    """
    if job.code_volume is not None:
        return Sources(base, base), None
    if job.command is not None:
        check_launch_script(job, base / (job.code_directory or ""))
    if job.code_directory is not None:
        return _read_code(job, base.resolve(), base.resolve() / job.code_directory)
    if job.script is not None:
        return _read_script(base.resolve(), base.resolve() / job.script)
    # The job has no files. `base` is not resolved, because resolving a path is slow compared with a render.
    if job.function is not None:
        _check_size("function", "the program", len(job.function.encode()))
    return Sources(base, base), None


def list_code(job: TrainingJob, base_dir: Path) -> CodeFiles:
    """Returns the shipped files of a job's `code`. Does not read the files, and does not check their total size.

    Raises:
        BadInputError: the directory is missing or unreadable, or contains files that cannot be shipped.
    """
    assert job.code_directory is not None
    directory = base_dir.resolve() / job.code_directory
    with located_errors("code", directory):
        if not directory.is_dir():
            raise _missing("code", "directory", directory, base_dir)
        return find_code_files(directory)


def _read_code(job: TrainingJob, base: Path, directory: Path) -> tuple[Sources, bytes | None]:
    code = list_code(job, base)
    text = None
    archive, too_large, notes = None, "", ignored_notes(code)
    with located_errors("code", directory):
        try:
            archive = pack(code)
        except CodeTooLargeError as error:
            too_large = str(error)
            notes += (f"code: {code.size} bytes are too many to ship with a run on a cluster",)
    if job.script is not None and (script := script_in_code(job)) not in code.files:
        with located_errors("script", directory / script):
            if not (directory / script).is_file():
                raise _missing("script", "file", directory / script, base)
        raise BadInputError(
            f"script: {job.script} is not among the shipped files of code ({directory});"
            f" give a path inside it that {code.remedy_file} does not exclude, or leave code out"
        )
    if job.script is not None:
        with located_errors("script", directory / script):
            text = read_regular(code.files[script].path, UNPACKED_LIMIT)
    files = tuple(code.largest_first())
    return Sources(base, directory, archive=archive, files=files, notes=notes, unshippable=too_large), text


def _read_script(base: Path, path: Path) -> tuple[Sources, bytes]:
    with located_errors("script", path):
        if not path.is_file():
            raise _missing("script", "file", path, base)
        target = path.resolve()
        _check_size("script", str(path), target.stat().st_size)
        text = read_regular(target, CODE_LIMIT)
        if text is None:
            raise ChangedError(str(path))
    if secret_by_name(path.name) or secret_by_name(target.name) or holds_secret(target.name, text):
        raise BadInputError(
            f"script: {path} looks like credentials, and a script is shipped in a ConfigMap; give a Python file"
        )
    with located_errors("script", path):
        try:
            siblings = find_siblings(path, text, base)
            if siblings.files:
                sources = _with_siblings(base, path, {path.name: CodeFile(target, len(text)), **siblings.files})
            else:
                sources = Sources(base, path.parent, script=text, files=((path.name, len(text)),))
        except BadInputError as error:
            return Sources(base, path.parent, unshippable=str(error)), text
        return replace(sources, missing=siblings.missing), text


def _with_siblings(base: Path, path: Path, files: dict[str, CodeFile]) -> Sources:
    """Packs a script together with the modules that the script imports.

    If the modules cannot be packed, raises a BadInputError that contains the names of the modules.
    """
    code = CodeFiles(path.parent, files)
    names = ", ".join(name for name, _ in zip((name for name in files if name != path.name), range(10), strict=False))
    wrong = [name for name, file in files.items() if secret_by_name(name) or secret_by_name(file.path.name)]
    if wrong:
        raise BadInputError(
            f"script: {path.name} imports {names} beside it, of which {wrong[0]} looks like credentials; rename it, or"
            " give code: ."
        )
    packed = compress(code) if code.size <= UNPACKED_LIMIT else b""
    if not packed or len(packed) > CODE_LIMIT:
        size = f"{len(packed)} bytes packed" if packed else f"{code.size} bytes"
        raise BadInputError(
            f"script: {path.name} and the modules beside it that it imports ({names}) have {size}; at most {CODE_LIMIT}"
            f" bytes packed can be shipped; the largest files are {largest(code.largest_first())}; {LARGE_CODE}"
        )
    return Sources(base, path.parent, archive=packed, files=tuple(code.largest_first()))


def shipped_note(sources: Sources) -> tuple[str, ...]:
    """Returns the notes about shipped files and missing imports, for a run on a cluster.

    If no files are shipped, the function returns an empty tuple.

    >>> shipped_note(Sources(Path(), Path(), b"x", None, (("train.py", 2000), ("lib/a.py", 10))))
    ('ships 2 files of 2010 bytes: train.py, lib/a.py',)
    """
    if not sources.files:
        return ()
    size = sum(size for _, size in sources.files)
    packed = f", {len(sources.archive)} bytes packed" if sources.archive is not None else ""
    names = [shown(name) for name, _ in sources.files[:_SHOWN]]
    more = [f"{len(sources.files) - _SHOWN} more"] if len(sources.files) > _SHOWN else []
    count = "1 file" if len(sources.files) == 1 else f"{len(sources.files)} files"
    return (f"ships {count} of {size} bytes{packed}: {', '.join([*names, *more])}", *import_notes(sources))


def import_notes(sources: Sources) -> tuple[str, ...]:
    """Returns the note about imported modules that may be missing in the pods of a cluster.

    If no import is missing, the function returns an empty tuple.

    >>> import_notes(Sources(Path(), Path(), b"import common", missing=("common",)))[0].partition(";")[0]
    'script: common is imported, but found neither beside the script nor on this machine'
    """
    missing = sources.missing
    if not missing:
        return ()
    names = ", ".join(missing[:_SHOWN]) + (f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else "")
    return (
        f"script: {names} {'is' if len(missing) == 1 else 'are'} imported, but found neither beside the script nor on"
        " this machine; the script extends sys.path, so ship the modules with code: DIR unless the image contains them",
    )


def ignored_notes(code: CodeFiles) -> tuple[str, ...]:
    """Returns a note about the files that the ignore files exclude.

    If the ignore files exclude nothing, the function returns an empty tuple.

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


def _missing(field: str, what: str, path: Path, base: Path) -> BadInputError:
    base = base.resolve()
    remedy = script_remedy(os.path.relpath(path, base), base) or f"paths are relative to {base}"
    return BadInputError(f"{field}: no such {what}: {path}; {remedy}")


@contextmanager
def located_errors(field: str, path: Path) -> Iterator[None]:
    """Converts an OSError or a ChangedError into a BadInputError. The message starts with `field`.

    Args:
        field: the name of a field of the job file.
        path: the path in the message if the OSError contains no path.
    """
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
        raise BadInputError(f"{field}: {what} has {size} bytes; at most {CODE_LIMIT} can be shipped; {LARGE_CODE}")
