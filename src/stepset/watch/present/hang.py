"""Creates the sentences about a hang: what each rank waits for, and what the user can do. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence

from stepset.hang import Hang, HangGroup, HangKind, SlowRanks
from stepset.printable import printable
from stepset.run_status import RunStatus
from stepset.watch.present.places import call_name, collective_words, place_words, ranks_named
from stepset.watch.present.sentences import command_for

_STATES = {
    "sleeping": "sleeping in",
    "lock": "waiting for a lock in",
    "thread": "waiting for a thread in",
    "child": "waiting for a child process in",
    "pipe": "waiting for a pipe in",
    "socket": "waiting for a socket in",
    "input": "waiting for input in",
    "disk": "blocked in the kernel (state D) in",
    "stopped": "stopped by a signal (state T) in",
    "zombie": "terminated and not reaped in",
    "gil": "holding the GIL in",
    "running": "running in",
    "polling": "polling in",
    "idle": "waiting in",
    "rendezvous": "waiting for other ranks in",
    "exiting": "has finished and does not exit",
    "exited": "exited with code 0",
    "absent": "does not run",
    "timeout": "has waited too long for the others",
}
_NOT_JOINED = (HangKind.MISSING, HangKind.NEVER_JOINED, HangKind.BLOCKED)


def pause(seconds: float) -> str:
    """Returns the length of a pause as text.

    >>> pause(12.4), pause(310.2), pause(7260)
    ('12 s', '5 min 10 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def hang_lines(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Returns the result of `hang_rows` as lines: a sentence, a line for each place of ranks, and advice."""
    width = max((len(title) for title, _ in rows[1:]), default=0)
    return [*(text for _, text in rows[:1]), *(f"  {title:<{width}}   {text}" for title, text in rows[1:])]


def hang_rows(status: RunStatus, flags: str | None = None) -> tuple[tuple[str, str], ...]:
    """Returns the report of the hang of a run as titles and texts. Returns an empty tuple if the run has no hang.

    `flags` are those of `command_for`.
    """
    hang = status.hang
    if hang is None:
        return ()
    last = ", ".join(filter(None, ("" if hang.step is None else f"step {hang.step}", printable(hang.last))))
    before = f" (longest pause before: {pause(hang.longest)})" if hang.longest else ""
    head = f"no progress for {pause(hang.silent)}{before}{f'; last: {last}' if last else ''}"
    cells = [_cells(group, hang.kind) for group in hang.groups]
    widths = [max((len(row[column]) for row in cells), default=0) for column in range(3)]
    places = ["   ".join(f"{cell:<{width}}" for cell, width in zip(row, (*widths, 0), strict=True)) for row in cells]
    named = [(ranks_named(group.ranks), text.rstrip()) for group, text in zip(hang.groups, places, strict=True)]
    advice = f"{hang_remedy(hang)} Full stacks: {command_for('stacks', status, flags)}"
    return ("hang", head), *named, ("advice", advice)


def _cells(group: HangGroup, kind: HangKind) -> tuple[str, str, str, str]:
    """Returns what a group of ranks does, the function, the place, and the process with its node."""
    frame, many = group.frame, len(group.ranks) > 1
    call = group.collective
    if group.state == "collective":
        what = f"waiting in {collective_words(call)}" if call is not None else "waiting in a collective"
    else:
        what = _STATES.get(group.state) or printable(group.state)
        if many:
            what = what.replace("has ", "have ").replace("does ", "do ")
        if group.state == "child" and group.process:
            what = f"waiting for {printable(group.process)} in"
        if group.guilty and kind in _NOT_JOINED and group.state not in ("absent", "exited"):
            what = f"{'have' if many else 'has'} not joined; {what}"
        if frame is None:
            what = what.removesuffix(" in")
        if group.why:
            what = f"{what} ({printable(group.why)})"
    waits = frame is not None and frame.call and group.state in ("collective", "rendezvous")
    function = "" if frame is None else printable(frame.call if waits else frame.function)
    of_rank = f" of {ranks_named(group.ranks)}" if group.process.startswith("DataLoader") else ""
    process = "" if group.state == "child" else f"{group.process}{of_rank}"
    facts = [process, group.node] if group.guilty else [process]
    facts += [f"another thread: {place_words(frame)}" for frame in group.others] if group.guilty else []
    more = ", ".join(printable(fact) for fact in facts if fact)
    return what, function, place_words(frame), f"({more})" if more else ""


def hang_remedy(hang: Hang) -> str:
    """Returns one or two sentences: which rank is the cause of a hang, and what the user can do."""
    guilty = hang.guilty
    calls = sorted({group.collective.name for group in guilty if group.collective is not None})
    mpi = bool(calls) and all(call.startswith("MPI_") for call in calls)
    if mpi and hang.kind is HangKind.ALL_WAIT:
        network = "check that all use the same communicator, and the network between the nodes"
        return f"All ranks wait in {', '.join(map(printable, calls))}: {network}."
    if mpi and hang.kind is HangKind.MISMATCH:
        rule = "each receive needs a send, and all ranks must call the same collectives in the same order"
        return f"All ranks wait for each other in {', '.join(map(printable, calls))}: {rule}."
    if hang.kind is HangKind.ALL_WAIT or not guilty:
        return "All ranks wait in the same collective: check the network between the nodes (interfaces, MTU, firewall)."
    who = ", ".join(map(_who, guilty))
    ranks = ranks_named([rank for group in guilty for rank in group.ranks])
    many = ranks.startswith("ranks")
    have = "have" if many else "has"
    at = f" at {printable(hang.master)}" if hang.master else ""
    if hang.kind is HangKind.LEFT:
        wait = f"{ranks} exited while other ranks wait for {'them' if many else 'it'}"
        return f"{wait}: check that all ranks run the same number of steps."
    if hang.kind is HangKind.MISMATCH:
        rule = "all ranks must call the same collectives in the same order, with the same sizes"
        return f"The ranks wait in different collectives ({who}): {rule}."
    if hang.kind is HangKind.NEVER_JOINED and all(group.state == "rendezvous" for group in guilty):
        return f"All ranks wait in the rendezvous{at}: check the address, the port and the world size."
    if hang.kind is HangKind.NEVER_JOINED:
        return f"{who} {have} not joined the process group{at}."
    if hang.kind is HangKind.AT_EXIT:
        end = "end the thread or the child process before the end of the script"
        return f"{who} {have} finished and {'do' if many else 'does'} not exit: {end}."
    if any(not group.guilty for group in hang.groups):
        return f"{who} {'block' if len(guilty) > 1 else 'blocks'} all other ranks."
    return f"{who} {'wait' if many else 'waits'} for something that is no other rank."


def _who(group: HangGroup) -> str:
    place = place_words(group.frame)
    return f"{place} on {ranks_named(group.ranks)}" if place else ranks_named(group.ranks)


def hang_clause(hang: Hang) -> str:
    """Returns what was known about a hang, as a part of the message of a failure."""
    texts = [" ".join(filter(None, (ranks_named(group.ranks), *_cells(group, hang.kind)[:3]))) for group in hang.guilty]
    return f"the run had made no progress for {pause(hang.silent)}: {'; '.join(texts)}"


def hang_ended(hang: Hang, suspect: str) -> str:
    """Returns the message of a run that an agent has ended because of a hang. `suspect` is the suspect machine."""
    machine = f"; the suspect node is {printable(suspect)}" if suspect else ""
    return f"a hang has ended the run; {hang_clause(hang)}{machine}."


def busy_note(hang: Hang, status: RunStatus) -> str:
    """Returns the note about ranks that work without progress while others wait for them. The note has no times."""
    see = command_for("stacks", status)
    busy = ", ".join(
        " ".join(
            filter(None, (ranks_named(group.ranks), f"in {group.frame.function}" if group.frame else "", _at(group)))
        )
        for group in hang.guilty
    )
    waiting = [rank for group in hang.groups if not group.guilty and group.state != "exited" for rank in group.ranks]
    calls = [call_name(group.collective) for group in hang.groups if group.collective is not None and not group.guilty]
    where = f" in {calls[0]}" if calls else ""
    verb = "wait" if len(waiting) > 1 else "waits"
    others = f", and {ranks_named(waiting)} {verb}{where}" if waiting else ""
    return f"no rank makes visible progress, but {busy} still works{others}; {see} shows all stacks"


def _at(group: HangGroup) -> str:
    place = place_words(group.frame)
    return f"({place})" if place else ""


def slow_words(slow: SlowRanks) -> str:
    """Returns which ranks the other ranks wait for, how often and how long.

    >>> slow_words(SlowRanks((2,), "gpu-4", "3", 97, 100, 0.2149, 0.183))
    'rank 2 (gpu-4, GPU 3) joins last in 97 of 100 collectives, by 215 ms; the other ranks wait for it 18 % of the time'
    >>> slow_words(SlowRanks((2, 3), "node 1", "", 100, 100, 1.5, 0.6))
    'ranks 2, 3 (node 1) join last in 100 of 100 collectives, by 1.5 s; the other ranks wait for them 60 % of the time'
    """
    many = len(slow.ranks) > 1
    place = ", ".join(filter(None, (slow.node, f"GPU {slow.gpu}" if slow.gpu else "")))
    where = f" ({printable(place)})" if place else ""
    late = f"{slow.delay * 1000:.3g} ms" if slow.delay < 0.9995 else f"{slow.delay:.3g} s"
    often = f"join{'' if many else 's'} last in {slow.last} of {slow.compared} collectives, by {late}"
    wait = f"the other ranks wait for {'them' if many else 'it'} {slow.share * 100:.0f} % of the time"
    return f"{ranks_named(slow.ranks)}{where} {often}; {wait}"


def progress_again(seconds: float) -> str:
    """Returns the sentence that a run makes progress again after a hang was reported."""
    return f"progress again after {pause(seconds)}"


def has_failed_rank(status: RunStatus) -> bool:
    """Returns whether a rank has failed or was stopped. The other ranks will then be stopped, too.

    >>> from stepset.run_status import RankStatus
    >>> rows = [RankStatus(f"rank {n}", n, "node-0", state=state) for n, state in enumerate(["Stopped", "Running"])]
    >>> has_failed_rank(RunStatus("a-1", "a", "local", ranks=tuple(rows)))
    True
    """
    return any(row.state in ("Failed", "Stopped") for row in status.ranks)
