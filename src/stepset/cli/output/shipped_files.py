"""Creates the output of `stepset explain --files`: the files that a run ships, and their sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from stepset.sources import CODE_LIMIT, ignored_notes, list_code, located_errors, read_sources
from stepset.sources.archive import UNPACKED_LIMIT, compress
from stepset.spec.job import TrainingJob


class ShippedFile(TypedDict):
    """A file that a run ships. The size is in bytes."""

    path: str
    size: int


class ShippedFiles(TypedDict):
    """The files that a run ships. Sizes are in bytes."""

    files: list[ShippedFile]
    size: int
    packed: int | None
    limit: int
    notes: list[str]


def shipped_files(job: TrainingJob, base_dir: Path) -> ShippedFiles:
    """Returns the files that a run ships, as plain data. The largest file comes first. Sizes are in bytes.

    If the files are too large to be packed, `packed` is None. Raises the errors of `read_sources`.
    """
    if job.code_directory is None:
        sources = read_sources(job, base_dir)
        sources.check_shippable()
        files = list(sources.files)
        size = sum(size for _, size in files)
        packed: int | None = size if sources.archive is None else len(sources.archive)
        notes = sources.notes
    else:
        code = list_code(job, base_dir)
        files, size = code.largest_first(), code.size
        with located_errors("code", code.directory):
            packed = None if size > UNPACKED_LIMIT else len(compress(code))
        notes = ignored_notes(code)
    return {
        "files": [{"path": path, "size": size} for path, size in files],
        "size": size,
        "packed": packed,
        "limit": CODE_LIMIT,
        "notes": list(notes),
    }


def shipped_files_text(job: TrainingJob, base_dir: Path) -> str:
    """Returns the result of `shipped_files` as a table. Raises the errors of `shipped_files`."""
    from stepset.cli.output.tables import Line, rendered, table
    from stepset.watch.present.sentences import counted

    shown = shipped_files(job, base_dir)
    if not shown["files"]:
        return rendered(Line("no files are shipped: the job has neither code nor script, or its code has no files"))
    rows = [(file["path"], str(file["size"])) for file in shown["files"]]
    parts: list[Any] = [table(("File", "Bytes"), rows, ("cyan", ""))]
    packed = "too large to pack" if shown["packed"] is None else f"{shown['packed']} packed"
    total = f"{counted(len(rows), 'file')}, {shown['size']} bytes, {packed}; at most {shown['limit']} can be shipped"
    over = shown["packed"] is None or shown["packed"] > shown["limit"]
    parts += ["", Line(total, "bold red" if over else "bold")]
    parts += [Line(f"note: {note}", "yellow") for note in shown["notes"]]
    return rendered(*parts)
