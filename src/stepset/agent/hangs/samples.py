"""Samples of ranks, which are compared: the content of the event `stalled`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from stepset.agent.hangs.answers import Answer, answers, middle_cut
from stepset.agent.hangs.calls import Calls
from stepset.agent.hangs.processes import environment, read_process, switches_of_threads, usage, waits_for

_EVENT_LIMIT = 16 << 10  # bytes of one rank's event
_CPU = 0.2  # CPU seconds per second above which a process works; on a busy machine, it may get no more
_SWITCHES, _BYTES = 2.0, 64 << 10  # context switches per second, and bytes, above which a process works
_SWITCHES_OF_THREADS = 20.0  # per second, above which the threads for which a main thread waits work
_THREADS = ("/threading.py", "/queue.py", "/concurrent/futures/_base.py")
_PER_SIGNAL = 4  # context switches


class Sample:
    """What was read about one process at one time."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.at = time.monotonic()
        process = answer.process
        now = read_process(process.pid) or process
        self.state, self.seconds = now.state, now.seconds
        main = read_process(process.pid, f"task/{process.pid}/")
        self.seconds_of_others = now.seconds - main.seconds if main else 0.0
        self.waits = waits_for(process.pid)
        self.switches, self.bytes = usage(process.pid)
        names = [thread["name"] for thread in answer.threads[1:]]
        frames = answer.threads[0]["frames"] if answer.threads else []
        waits = any(frame[1].endswith(_THREADS) for frame in frames[:3])
        self.of_threads = switches_of_threads(process.pid, names) if waits else None


def sample(ranks: Mapping[Any, int], directory: str, times: Iterable[float]) -> dict[Any, dict[str, Any]]:
    """Samples ranks several times, and returns for each rank what the event `stalled` contains.

    Args:
        ranks: the process of each rank.
        directory: the directory of the hook.
        times: when to take the samples, in seconds from now.
    """
    start = time.monotonic()
    samples: dict[Any, list[dict[int, Sample]]] = {rank: [] for rank in ranks}
    calls = None
    for at in times:
        time.sleep(max(0.0, start + at - time.monotonic()))
        for rank, found in answers(ranks, directory).items():
            samples[rank].append({answer.process.pid: Sample(answer) for answer in found})
        calls = calls or Calls(pid for each in samples.values() for pid in each[-1])
    known = calls.end() if calls else {}
    return {rank: _compared(ranks[rank], each, known) for rank, each in samples.items() if each and each[-1]}


def _compared(root: int, samples: list[dict[int, Sample]], calls: Mapping[int, dict[str, str]]) -> dict[str, Any]:
    """Returns the last sample of a rank, with what has changed since the first one."""
    processes, collectives = [], []
    for pid, last in samples[-1].items():
        history = [each[pid] for each in samples if pid in each]
        process = _compared_process(history, calls.get(pid, {}))
        processes.append(process)
        collectives += last.answer.collectives
    about = environment(root)
    found: dict[str, Any] = {"processes": processes, "collectives": collectives[:16]}
    if about.get("MASTER_ADDR"):
        found["master"] = f"{about['MASTER_ADDR'][:255]}:{about.get('MASTER_PORT', '')[:5]}"
    return found


def _compared_process(history: list[Sample], call: Mapping[str, str]) -> dict[str, Any]:
    first, last = history[0], history[-1]
    answer, process = last.answer, last.answer.process
    elapsed = max(last.at - first.at, 0.001)
    stacks = [each.answer.threads[0]["frames"] for each in history if each.answer.threads]
    done = [[(each["done"], each["queued"]) for each in sample.answer.collectives] for sample in history]
    changed = any(each != stacks[0] for each in stacks) or any(each != done[0] for each in done)
    cpu = (last.seconds - first.seconds) / elapsed
    written = sum(each.answer.size for each in history[1:])  # by the hook
    # The hook's signal interrupts a system call, which takes some switches.
    switches = last.switches - first.switches - _PER_SIGNAL * (len(history) - 1)
    works = last.bytes - first.bytes - written > _BYTES
    if "call" in call:  # the main thread polls
        works = works or (last.seconds_of_others - first.seconds_of_others) / elapsed > _CPU
    else:
        works = works or cpu > _CPU or switches / elapsed > _SWITCHES
    if first.of_threads is not None and last.of_threads is not None:
        works = works or (last.of_threads - first.of_threads) / elapsed > _SWITCHES_OF_THREADS
    states = {each.state for each in history}
    found: dict[str, Any] = {
        "pid": process.pid,
        "kind": process.kind,
        "name": process.name[:64],
        # A process may be in state D or T for a moment.
        "state": last.state if len(states) == 1 or last.state not in "DTt" else "S",
        **next((each.waits for each in reversed(history) if "syscall" in each.waits), last.waits),
        "cpu": round(cpu, 2),
        "changed": changed,
        "busy": len(history) > 1 and (changed or works),
        "gil": answer.holds_gil,
        "threads": answer.threads,
        **call,
    }
    if why := "; ".join(filter(None, (answer.why, call.get("why")))):
        found["why"] = why
    return found


def fitted_rank(found: dict[str, Any]) -> dict[str, Any]:
    """Returns what was sampled of a rank, in at most `_EVENT_LIMIT` bytes of JSON.

    Removes other threads than the main thread first, then frames of the middle of stacks, then the members of groups,
    then processes without stacks, then others.
    """
    import json

    for threads, frames in ((8, 32), (2, 24), (1, 16), (1, 8)):
        if len(json.dumps(found)) <= _EVENT_LIMIT:
            return found
        processes = [
            {**each, "threads": [{**t, "frames": middle_cut(t["frames"], frames)} for t in each["threads"][:threads]]}
            for each in found["processes"]
        ]
        found = {**found, "processes": processes}
    for waits in (False, True):
        if len(json.dumps(found)) > _EVENT_LIMIT:
            kept = [{**each, "ranks": []} if waits or not each["seq"] else each for each in found["collectives"]]
            found = {**found, "collectives": kept}
    while len(json.dumps(found)) > _EVENT_LIMIT and (found["processes"] or found["collectives"]):
        name = "processes" if len(found["processes"]) > 1 or not found["collectives"] else "collectives"
        kept = found[name]
        without = [each for each in kept if each.get("threads", True)]
        found = {**found, name: without if 0 < len(without) < len(kept) else kept[:-1]}
    return found
