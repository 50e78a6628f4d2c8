"""Renders the stacks of a run's ranks as a flame graph. Contains only pure functions.

The outermost frames are at the top. A frame contains the frames that it has called. Its width grows with the number of
its processes, and its label contains the ranks in the frame. The page has no scripts and no external resources.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from stepset.hang import StackFrame
from stepset.html.card import card, cell, cut
from stepset.html.escaped import escaped
from stepset.watch.crash import in_library
from stepset.watch.present.places import place_words, ranges, ranks_named
from stepset.watch.present.sentences import counted
from stepset.watch.present.stacks_text import RANKS, children_words, files_words, group_words
from stepset.watch.stacks.grouping import StackGroup, child_processes, grouped, grouped_children, main_processes
from stepset.watch.stacks.model import LAUNCHER, RankStacks, RunStacks, own_frame

_MAX_FRAMES = 4000
"""The maximum number of frames in a flame graph. A browser needs seconds to lay out a larger graph."""
_TITLE = 1000
"""The maximum number of characters of a list of ranks that the browser shows for a frame."""
_LEGEND = (
    "Each frame is above the frames that it has called. On its right: the ranks in it | the ranks not in it. Violet:"
    " the frame is not in a library. Red: fewer than half of the ranks are in it."
)
_STYLE = """
.stepset-run.stepset-run.stepset-run { max-width: none; }
.flames { overflow-x: auto; margin: .4rem 0 1.2rem; padding-bottom: .4rem; }
.flames .row { display: flex; align-items: flex-start; min-width: 100%; width: max-content; }
.flames .row .row { min-width: 0; width: auto; }
.flames .node { flex: var(--n) 1 0; min-width: 9.5rem; }
.flames .frame { margin: 0 1px 1px 0; padding: .1rem .35rem; border-radius: 3px; background: var(--card);
  border-left: 3px solid var(--line); color: var(--quiet); font: 12px/1.35 ui-monospace, monospace;
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.flames .frame b { font-weight: 600; } .flames .frame i { font-style: normal; float: right; padding-left: .6rem; }
.flames .own { color: var(--ink); border-left-color: var(--mark); }
.flames .few { border-left-color: var(--bad); background: color-mix(in srgb, var(--bad) 9%, var(--card)); }
.flames .few i { color: var(--bad); }
h1 { font: 600 18px/1.4 system-ui, sans-serif; margin: 0; } h2 { font: 600 14px/1.4 system-ui, sans-serif; }
body { margin: 1rem; background: #fff; } @media (prefers-color-scheme: dark) { body { background: #14171e; } }
summary { cursor: pointer; font-weight: 600; }
"""
"""The style of flame graphs, and of the page. `card` defines the colours."""


@dataclass
class _Node:
    """A frame, and the frames that it has called. The root has no frame."""

    frame: StackFrame | None = None
    ranks: set[int] = field(default_factory=set)
    stacks: int = 0
    children: dict[StackFrame, _Node] = field(default_factory=dict)


def stacks_page(run: RunStacks, at: str = "") -> str:
    """Returns a document with the flame graphs and the groups of equal stacks.

    Args:
        at: the time at which the stacks were read, as text. By default, the page contains no time.
    """
    title = escaped(f"Stacks of {run.run}")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"</head>\n<body>\n{stacks_html(run, at)}\n</body>\n</html>\n"
    )


def stacks_html(run: RunStacks, at: str = "") -> str:
    """Returns the flame graphs and the groups of equal stacks as an element for notebooks. See `stacks_page`."""
    return card((f"<style>{_STYLE}</style>", *_parts(run, at)))


def _parts(run: RunStacks, at: str) -> Iterator[str]:
    everyone = {rank.rank for rank in run.ranks}
    about = [counted(len(run.ranks), "rank"), *([at] if at else [])]
    yield f'<h1>{cell(f"Stacks of {run.run}")}</h1><p class="quiet">{cell(", ".join(about))}</p>'
    for problem in run.problems:
        yield f'<p class="bad">{cell(problem)}</p>'
    yield from _table(grouped(run.ranks), grouped_children(run.ranks))
    main = [(rank.rank, process.frames) for rank in run.ranks for process in main_processes(rank)]
    yield from _flames("Main threads of the ranks", main, everyone)
    yield f'<p class="quiet">{escaped(_LEGEND)}</p>'
    others = [(rank.rank, process.frames) for rank in run.ranks for process in child_processes(rank)]
    yield from _flames("Workers and other processes of the ranks", others, everyone)
    yield from _folded("Other threads of the ranks", [*_other_threads(run.ranks)], everyone)


def _other_threads(ranks: Iterable[RankStacks]) -> Iterator[tuple[int, tuple[StackFrame, ...]]]:
    for rank in ranks:
        for process in rank.processes:
            if process.kind != LAUNCHER:
                yield from ((rank.rank, thread.frames) for thread in process.threads[1:])


def _table(groups: Sequence[StackGroup], children: Sequence[StackGroup]) -> Iterator[str]:
    yield '<div class="scroll"><table><tr><th>processes</th><th>state</th><th>innermost frame</th></tr>'
    for group in groups[:100]:
        yield _row(f"{ranks_named(group.ranks, RANKS)} ({len(group.ranks)})", group)
    for group in children[:100]:
        yield _row(children_words(group), group)
    yield "</table></div>"
    if (rest := len(groups[100:]) + len(children[100:])) > 0:
        yield f'<p class="quiet">{counted(rest, "more group")}</p>'


def _row(name: str, group: StackGroup) -> str:
    own = own_frame(group.frames) or next(iter(group.frames), None)
    place = f"{own.function}  {place_words(own)}" if own else files_words(group)
    return (
        f'<tr><td class="text">{cell(name)}</td><td class="text">{cell(group_words(group))}</td>'
        f"<td>{cell(place)}</td></tr>"
    )


def _folded(title: str, stacks: Sequence[tuple[int, tuple[StackFrame, ...]]], everyone: set[int]) -> Iterator[str]:
    if any(frames for _, frames in stacks):
        yield f"<details><summary>{escaped(title)}</summary>"
        yield from _graph(stacks, everyone)
        yield "</details>"


def _flames(title: str, stacks: Sequence[tuple[int, tuple[StackFrame, ...]]], everyone: set[int]) -> Iterator[str]:
    if any(frames for _, frames in stacks):
        yield f"<h2>{escaped(title)}</h2>"
        yield from _graph(stacks, everyone)


def _graph(stacks: Sequence[tuple[int, tuple[StackFrame, ...]]], everyone: set[int]) -> Iterator[str]:
    root, count, left_out = _Node(), 0, 0
    for rank, frames in stacks:
        if count + len(frames) > _MAX_FRAMES:
            left_out += 1
            continue
        node = root
        for frame in reversed(frames):
            if frame not in node.children:
                node.children[frame] = _Node(frame)
                count += 1
            node = node.children[frame]
            node.ranks.add(rank)
            node.stacks += 1
    yield '<div class="flames">'
    yield from _row_of(root, everyone)
    yield "</div>"
    if left_out:
        yield f'<p class="quiet">{counted(left_out, "more stack")}</p>'


def _row_of(node: _Node, everyone: set[int]) -> Iterator[str]:
    """Yields the frames that a frame has called, side by side, the frame of most processes first."""
    if not node.children:
        return
    yield '<div class="row">'
    for child in sorted(node.children.values(), key=lambda each: (-each.stacks, min(each.ranks))):
        yield f'<div class="node" style="--n:{math.sqrt(child.stacks):.2f}">{_label(child, everyone)}'
        yield from _row_of(child, everyone)
        yield "</div>"
    yield "</div>"


def _label(node: _Node, everyone: set[int]) -> str:
    frame = node.frame
    assert frame is not None
    classes = ["frame", *([] if in_library(frame.file) else ["own"])]
    classes += ["few"] if 2 * len(node.ranks) < len(everyone) else []
    inside, outside = (", ".join(ranges(sorted(ranks))) for ranks in (node.ranks, everyone - node.ranks))
    title = (
        f"{frame.function}\n{frame.file}:{frame.line}\nranks in it: {cut(inside, _TITLE)}\n"
        f"ranks not in it: {cut(outside or 'none', _TITLE)}"
    )
    ranks = f"{inside} | {outside or 'none'}"
    return (
        f'<div class="{" ".join(classes)}" title="{"&#10;".join(map(escaped, title.splitlines()))}">'
        f"<i>{cell(ranks)}</i><b>{cell(frame.function)}</b> {cell(place_words(frame))}</div>"
    )
