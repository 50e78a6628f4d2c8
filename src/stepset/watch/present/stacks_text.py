"""Creates the text that shows the stacks of a run's ranks. Contains only pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from stepset.printable import printable_line
from stepset.watch.crash import in_library
from stepset.watch.present.places import collective_words, place_words, ranks_named
from stepset.watch.present.sentences import counted, duration
from stepset.watch.stacks.grouping import StackGroup, grouped, grouped_children
from stepset.watch.stacks.model import RANK, WORKER, RunStacks

GROUPS = 8
"""The maximum number of groups of ranks, and of groups of other processes, in the text."""
RANKS = 64
"""The maximum number of ranks, and of ranges of ranks, in a list."""
_LINES = 40
"""About the number of lines of the text. It determines how many frames of each stack are shown."""
_FEWEST, _MOST = 2, 10
"""The limits for the number of shown frames of a stack."""
_FUNCTION, _CELL = 40, 100
"""The maximum widths of a function's name, and of other texts."""
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible sleep",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
}


def stacks_text(run: RunStacks) -> str:
    """Returns a text with one paragraph for each group of ranks with equal stacks.

    A paragraph states the ranks, the collective in which they wait, and the innermost frames. Problems are left out.
    """
    groups, children = grouped(run.ranks, GROUPS), grouped_children(run.ranks, GROUPS)
    shown = len(groups[:GROUPS]) + len(children[:GROUPS])
    frames = min(_MOST, max(_FEWEST, _LINES // max(1, shown) - 3))
    lines = [f"run {run.run}: {counted(len(run.ranks), 'rank')}, {counted(len(groups), 'stack')}"]
    for group in groups[:GROUPS]:
        title = f"{ranks_named(group.ranks, RANKS)} ({len(group.ranks)})"
        lines += ["", f"{title}: {group_words(group)}", *_frames(group, frames)]
    if len(groups) > GROUPS:
        rest = [rank for group in groups[GROUPS:] for rank in group.ranks]
        lines += ["", f"{ranks_named(rest, RANKS)} ({len(rest)}): {counted(len(groups) - GROUPS, 'more stack')}"]
    for group in children[:GROUPS]:
        lines += ["", f"{children_words(group)}: {group_words(group)}", *_frames(group, frames)]
    if len(children) > GROUPS:
        count = sum(len(group.members) for group in children[GROUPS:])
        lines += ["", counted(count, "more process", "more processes")]
    return "\n".join(map(printable_line, lines))


def time_words(run: RunStacks) -> str:
    """Returns the time at which the stacks were read, such as `2026-11-29 13:05:07 UTC`."""
    return datetime.fromtimestamp(run.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def group_words(group: StackGroup) -> str:
    """Returns what the processes of a group do, such as `waiting in all_reduce #1185 (gloo, float32, 4 MiB)`."""
    process, words = group.process, []
    if process is not None and process.kind == RANK and (waits := group.collective) is not None:
        words.append(f"waiting in {collective_words(waits.call)} for {duration(waits.age)}")
    if process is not None and process.call:
        words.append(f"waiting in {process.call}")
    if process is not None and process.gil:
        words.append("Python's global lock is held")
    if any(each.busy for _, each in group.members if each is not None):
        words.append("working")
    elif process is not None and (state := _STATES.get(process.state)):
        words.append(f"{state} in {process.wchan}" if process.wchan not in ("", "0") else state)
    if process is not None and process.waits:
        words.append(process.waits)
    if group.why:
        words.append(f"no Python stack: {group.why}" if process is not None else group.why)
    return _cut(", ".join(words) or "unknown state", 3 * _CELL)


def files_words(group: StackGroup) -> str:
    """Returns the open files of the process that represents a group without a stack. Returns "" if there are none."""
    files = group.process.files if group.process is not None and not group.frames else ()
    return _cut(f"open files: {', '.join(files)}", 3 * _CELL) if files else ""


def children_words(group: StackGroup) -> str:
    """Returns the processes of a group that are not ranks, such as `2 workers of rank 3`."""
    process = group.process
    kind = "worker" if process is not None and process.kind == WORKER else f"process {_name(group)}".rstrip()
    one = len(group.members) == 1 and process is not None
    what = f"{kind} (pid {process.pid})" if one and process else f"{len(group.members)} {_plural(kind)}"
    return f"{what} of {ranks_named(group.ranks, RANKS)}"


def _plural(kind: str) -> str:
    return kind.replace("process", "processes", 1) if kind.startswith("process") else f"{kind}s"


def _name(group: StackGroup) -> str:
    return _cut(group.process.name if group.process else "", _FUNCTION)


def _frames(group: StackGroup, limit: int) -> Iterator[str]:
    """Yields a line for each shown frame: the innermost frame, and the innermost frames of the user's own code."""
    frames = group.frames
    if files := files_words(group):
        yield f"    {files}"
    own = [at for at, frame in enumerate(frames) if not in_library(frame.file)]
    chosen = sorted({*range(min(1, len(frames))), *own[: limit - 1]})
    if len(chosen) < limit:  # without frames of the user's code, and for short stacks, library frames are shown, too
        chosen = sorted({*chosen, *range(min(len(frames), limit - len(own[: limit - 1])))})
    names = [_cut(frames[at].function or "?", _FUNCTION) for at in chosen]
    width = max(map(len, names), default=0)
    for at, name, previous in zip(chosen, names, [-1, *chosen], strict=False):
        if at > previous + 1:
            yield f"    ... {counted(at - previous - 1, 'frame')} of libraries"
        place = place_words(frames[at])
        yield f"    {name.ljust(width)}  {_cut(place if group.same_lines else place.rpartition(':')[0], _CELL)}"
    if chosen and chosen[-1] + 1 < len(frames):
        yield f"    ... {counted(len(frames) - chosen[-1] - 1, 'outer frame')}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
