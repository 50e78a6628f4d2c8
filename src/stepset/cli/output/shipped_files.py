"""What `stepset explain --files` shows: the files that a run ships, with their sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stepset.sources import CODE_LIMIT, ignored_notes, list_code, located_errors, read_sources
from stepset.sources.archive import UNPACKED_LIMIT, compress
from stepset.spec.job import TrainingJob


def shipped_files(job: TrainingJob, base_dir: Path) -> dict[str, Any]:
    """Returns the files that a run ships, the largest first, as plain data; sizes are in bytes.

    `packed` is None if the files are too large to be packed.

    Raises:
        BadInputError: as `read_sources`, except that the code may be over the limit.
    """
    if job.code is None:
        script = read_sources(job, base_dir).script
        files = [] if script is None else [(str(job.script), len(script))]
        size = sum(size for _, size in files)
        packed: int | None = size
        notes: tuple[str, ...] = ()
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
    """Returns the same as a table; raises as `shipped_files`."""
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
