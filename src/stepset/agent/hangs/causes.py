"""Decides whether the cause of a pause is a rank of this pod. Only then may the agent end the pod.

An agent knows only its own pod. If all ranks of the pod wait for other ranks, a rank of another pod may work.
docs/design/hangs.md describes the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepset.agent.errors import EXIT_BLOCKED, EXIT_HANG
from stepset.agent.events import now
from stepset.agent.hangs.processes import environment
from stepset.agent.rank import SIZE

_LIBRARIES = ("/lib/python", "/site-packages/", "/dist-packages/", "<frozen")
_DISTRIBUTED = "/torch/distributed/"


def has_all_ranks(pids: Sequence[int]) -> bool:
    """Returns whether the ranks of a pod, whose processes are given, are all ranks of the run."""
    variables = environment(pids[0]) if pids else {}
    size = next((variables[name] for name in SIZE if variables.get(name)), "")
    return variables.get("STEPSET_NUM_NODES") == "1" or size == str(len(pids))


def cause_of(ranks: Mapping[Any, Mapping[str, Any]], *, whole: bool) -> dict[str, Any] | None:
    """Returns the failure of the pod, or None if a rank works or the cause may be in another pod.

    Args:
        ranks: what was sampled of each rank. A launcher without ranks has the key None.
        whole: whether these are all ranks of the run.
    """
    known = {rank: found for rank, found in ranks.items() if rank is not None and found["processes"]}
    if not known or len(known) < len(ranks) or any(map(_works, known.values())):
        return None
    late = [rank for rank, found in known.items() if not _waits(found) and (whole or _is_known(found))]
    if late:
        places = [_place(_main(known[rank])) for rank in late]
        place, rank = min(zip(places, late), key=lambda each: (places.count(each[0]), each[1]))  # the odd one out
        blocked = _main(known[rank])["state"] == "D"
        code, kind = (EXIT_BLOCKED, "Infrastructure") if blocked else (EXIT_HANG, "UserError")
        error = f"no progress; rank {rank} {'is blocked in the kernel' if blocked else 'waits'}{place}"
        return {"rank": rank, "kind": kind, "exit_code": code, "error": error, "at": now()}
    if not whole:
        return None
    calls = {tuple((each["group"], each["seq"], each["name"]) for each in _pending(found)) for found in known.values()}
    if len(calls) == 1 and any(calls):  # all ranks have joined, so the training code is not the cause
        error = "no progress; all ranks wait in the same collective, and all have joined"
        return {"kind": "Infrastructure", "exit_code": EXIT_BLOCKED, "error": error, "at": now()}
    return {"kind": "UserError", "exit_code": EXIT_HANG, "error": "no progress; all ranks wait", "at": now()}


def _main(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the process of the rank itself."""
    processes: list[Mapping[str, Any]] = found["processes"]
    return next((each for each in processes if each["kind"] == "rank"), processes[0])


def _pending(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in found["collectives"] if each["seq"]]


def _waits(found: Mapping[str, Any]) -> bool:
    """Returns whether a rank waits for other ranks, according to its collectives or to its main thread."""
    main = _main(found)
    frames = [frame for each in main["threads"][:1] for frame in each["frames"]]
    return bool(_pending(found) or main.get("call")) or any(_DISTRIBUTED in frame[1] for frame in frames)


def _works(found: Mapping[str, Any]) -> bool:
    """Returns whether a rank works. A rank that waits in NCCL polls, and uses a whole core."""
    call = _main(found).get("call")
    if _waits(found) and not call:
        return bool(_main(found)["changed"])
    return any(each["busy"] or (each["state"] == "R" and not each.get("call")) for each in found["processes"])


def _is_known(found: Mapping[str, Any]) -> bool:
    """Returns whether it is known that a rank does not wait for ranks of other pods.

    Ranks without torch can wait for each other in other ways, which the sample does not show.
    """
    return bool(found["collectives"]) or _main(found)["state"] in ("D", "T", "t") or bool(_main(found)["gil"])


def _place(process: Mapping[str, Any]) -> str:
    """Returns the innermost frame outside of libraries, as text."""
    frames = process["threads"][0]["frames"] if process["threads"] else []
    for function, file, line in frames:
        if not any(part in file for part in _LIBRARIES):
            return f" in {function} ({file.rpartition('/')[2]}:{line})"
    return ""
