"""The scenarios of the contract as data: what happens while a run is followed, and what the user must see.

docs/testing/contract.md explains the expected behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.many import RESULT
from tests.cluster.stage import Stage
from tests.contract.outcome import Outcome, counted_last, numbered
from tests.contract.steps import (
    RECOVERY_TIME,
    STARTUP_TIME,
    Step,
    clear,
    delete_run,
    drop,
    fault,
    fill_namespace,
    forge_objects,
    lines,
    pause,
    renew_credentials,
    reported,
    requested,
    resume_run,
    run_continues,
    run_ended,
    say,
    start_server,
    stop_server,
    suspend_run,
)

NO_ANSWER = r"server \S+ does not answer"
"""Reported after 10 seconds. The same may be reported of a node, whose heartbeats the server missed."""
COUNTS = "if rank == 0: " + RESULT.format("{'lines': count}")
SUCCEEDS = ("count_until('end')", COUNTS)
FAILS_ONCE = ("if attempt == 0: count_until('fail')", "if attempt == 0: sys.exit(3)", "count_until('end')", COUNTS)
LOST_LINES = r"pod \S+: .*\blogs?\b.* (lost|gone|removed|cannot be read|missing)"


@dataclass(frozen=True)
class Expected:
    """What the user must see.

    Args:
        phase, failure, exit_code: as in Outcome.
        error: a part of the error with which the wait ends before the run; empty if it does not.
        counts: the result is the number of lines that rank 0 printed since its last start.
        starts: how often each rank counts its lines from 0.
        lost: the number of these counts whose start or end may be missing, because the log was removed.
        messages: patterns, each of which must match exactly one message.
        absent: patterns that must not match any message.
        memory_mb: the maximum memory of the interface's process.
    """

    phase: str = "Succeeded"
    failure: str = ""
    exit_code: int = 0
    error: str = ""
    counts: bool = True
    starts: int = 1
    lost: int = 0
    messages: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    memory_mb: float = 400.0

    def numbered(self, lines: list[str]) -> str:
        """Describes the first error in the numbered lines of a rank; empty without error."""
        return numbered(lines, self.starts, self.lost)

    def differs(self, outcome: Outcome, lines: list[str]) -> str:
        """Describes how an outcome differs from the expected one; empty if it does not.

        Args:
            outcome: the outcome of an interface.
            lines: the lines that it showed of rank 0.
        """
        if bool(self.error) != bool(outcome.error) or self.error not in outcome.error:
            return f"{outcome} instead of the error {self.error!r}"
        result = {"lines": counted_last(lines)} if self.counts else None
        wanted = Outcome(self.phase, self.failure, result, self.exit_code, outcome.error)
        return "" if outcome == wanted else f"{outcome} instead of {wanted}"


@dataclass(frozen=True, eq=False)  # compared by identity: mappings have no hash
class Scenario:
    """The events during a run, and the expected output.

    Args:
        name: the scenario's name.
        sort: the object of the fault: credentials, server, watch, object, log or run; for the pairwise selection.
        steps: the steps after the start of the interface, in order.
        expected: what the user must see.
        program: lines of Python that each rank runs; see Stage.job.
        ranks: the number of ranks, each in its own pod.
        fields: other fields of the job.
        target: the run's target.
        user: the client's kind of credentials; see Gate.
        initial_faults: faults that are active before the interface starts: (name, do, fields).
        pause: seconds to sleep after each line that the interface shows.
        timeout: seconds within which the interface must end after the last step.
        afterwards: steps after the end of the interface.
        disruptive: whether it breaks the cluster, so that no other scenario may run at the same time.
        essential: whether the selection contains it for every interface.
        heavy: whether the selection contains it for the first interface only.
        shared: whether all its plays use the same namespace.
    """

    name: str
    sort: str
    steps: tuple[Step, ...]
    expected: Expected = Expected()
    program: tuple[str, ...] = SUCCEEDS
    ranks: int = 2
    fields: Mapping[str, Any] = field(default_factory=dict)
    target: str = "jobset"
    user: str = "token"
    initial_faults: tuple[tuple[str, str, tuple[tuple[str, Any], ...]], ...] = ()
    pause: float = 0.0
    timeout: float = RECOVERY_TIME
    afterwards: tuple[Step, ...] = ()
    disruptive: bool = False
    essential: bool = False
    heavy: bool = False
    shared: bool = False

    def job(self, stage: Stage) -> dict[str, Any]:
        """The fields of its job."""
        return stage.job(*self.program, num_nodes=self.ranks, **self.fields)


CONNECTED = lines(10, STARTUP_TIME)
END = (lines(10), say("end"))
"""The interface shows more lines; then the run ends."""

LIST_AGAIN = (fault("expired", on=("watch",), count=4), drop("watch"), requested("list", 2))
"""The interface lists all objects again."""

FORGED = (CONNECTED, forge_objects, *LIST_AGAIN, *END)
NOT_FORGED = Expected(absent=(NO_ANSWER, "FORGED", "started again", "Restarting", "cannot be computed"))

LIST_PODS_AGAIN = (
    fault("expired", on=("watch pods",), count=1),
    drop("watch"),
    requested("list pods", 1, STARTUP_TIME),
    requested("watch pods", 2, STARTUP_TIME),
)
"""The interface lists all pods again; the second watch begins when the list is complete."""

FIVE_FAULTS = (
    Scenario(
        "401 for 6 s after a dropped connection",
        "credentials",
        (CONNECTED, fault("refuse", status=401), drop(), pause(6), clear("refuse"), *END),
        Expected(absent=(NO_ANSWER,)),
        essential=True,
    ),
    Scenario(
        "403 for 6 s then silence",
        "credentials",
        (
            CONNECTED,
            fault("refuse", status=403, on=("list", "get", "watch", "log")),
            drop(),
            pause(6),
            fault("quiet", on=("watch",)),
            clear("refuse"),
            lines(10),
            pause(20),
            clear("quiet"),
            *END,
        ),
        Expected(absent=(NO_ANSWER,)),
        essential=True,
    ),
    Scenario(
        "server hangs while watches are open",
        "server",
        (CONNECTED, fault("hang"), say("end"), reported(NO_ANSWER, 45), clear("hang")),
        Expected(messages=(NO_ANSWER,)),
        essential=True,
        timeout=45,
    ),
    Scenario(
        "401 while a log is read",
        "log",
        (CONNECTED, fault("refuse", status=401, on=("log",)), drop("log"), pause(6), clear("refuse"), *END),
        Expected(absent=(NO_ANSWER, LOST_LINES)),
        essential=True,
    ),
    Scenario(
        "the previous container's log is removed",
        "log",
        (
            CONNECTED,
            fault("hang", on=("log",)),
            fault("no_previous", status=200),
            drop("log"),
            say("fail"),
            requested("log", 1),
            reported("started again"),
            clear("hang"),
            *END,
        ),
        Expected(starts=2, lost=1, messages=(LOST_LINES,)),
        program=FAILS_ONCE,
        ranks=1,
        fields={"restart": {"max_restarts": 1}},
        target="statefulset",
        essential=True,
    ),
)

OTHERS = (
    Scenario(
        "API server restarted",
        "server",
        (CONNECTED, stop_server, start_server, *END),
        disruptive=True,
    ),
    Scenario(
        "API server away for 60 s",
        "server",
        (CONNECTED, stop_server, reported(NO_ANSWER, 45), pause(45), start_server, *END),
        Expected(messages=(NO_ANSWER,)),
        disruptive=True,
    ),
    Scenario(
        "watch closed every second",
        "watch",
        (CONNECTED, pause(8), *END),
        Expected(absent=(NO_ANSWER,)),
        initial_faults=(("close", "close", (("on", ("watch",)), ("seconds", 1.0))),),
    ),
    Scenario(
        "410",
        "watch",
        (CONNECTED, fault("expired", on=("watch",), count=6), drop("watch"), requested("list", 3), *END),
        Expected(absent=(NO_ANSWER,)),
    ),
    Scenario(
        "streams with bookmarks only",
        "watch",
        (CONNECTED, fault("bookmarks", on=("watch",)), say("end"), run_ended, pause(15), clear("bookmarks")),
        Expected(absent=(NO_ANSWER,)),
    ),
    Scenario(
        "token file rotated",
        "credentials",
        (CONNECTED, renew_credentials, drop(), lines(20), *END),
        Expected(absent=(NO_ANSWER,)),
        user="token file",
    ),
    Scenario(
        "token of an exec plugin rotated",
        "credentials",
        (CONNECTED, renew_credentials, drop(), lines(20), *END),
        Expected(absent=(NO_ANSWER,)),
        user="exec",
    ),
    Scenario(
        "client certificate renewed",
        "credentials",
        (CONNECTED, renew_credentials, drop(), lines(20), *END),
        Expected(absent=(NO_ANSWER,)),
        user="certificate",
    ),
    Scenario(
        "one unparsable object",
        "object",
        (
            CONNECTED,
            fault("unparsable", on=("list", "watch")),
            fault("expired", on=("watch",), count=3),
            drop("watch"),
            requested("list", 2),
            requested("watch", 1),
            *END,
        ),
        Expected(absent=(NO_ANSWER,)),
    ),
    Scenario(
        "forged pods and unreadable workloads",
        "object",
        FORGED,
        NOT_FORGED,
        essential=True,
    ),
    *(
        Scenario(f"forged pods of a {kind}", "object", FORGED, NOT_FORGED, target=target)
        for kind, target in {"StatefulSet": "statefulset", "Job": "job", "TrainJob": "trainjob"}.items()
    ),
    Scenario(
        "a namespace filled by another user",
        "object",
        (CONNECTED, fill_namespace(2000, 200_000), *LIST_PODS_AGAIN, *END),
        Expected(absent=(NO_ANSWER,)),
        essential=True,
        shared=True,
    ),
    Scenario(
        "log connection dropped at random",
        "log",
        (lines(100, STARTUP_TIME), clear("cut"), *END),
        Expected(absent=(NO_ANSWER,)),
        initial_faults=(("cut", "cut", (("on", ("log",)), ("bytes", 1500))),),
    ),
    Scenario(
        "two container starts",
        "log",
        (CONNECTED, say("fail"), reported("started again"), *END),
        Expected(starts=2),
        program=FAILS_ONCE,
        fields={"restart": {"max_restarts": 1}},
        ranks=1,
        target="statefulset",
    ),
    Scenario(
        "the previous container is removed",
        "log",
        (
            CONNECTED,
            fault("hang", on=("log",)),
            fault("no_previous", status=400),
            drop("log"),
            say("fail"),
            requested("log", 1),
            reported("started again"),
            clear("hang"),
            *END,
        ),
        Expected(starts=2, lost=1, messages=(LOST_LINES,)),
        program=FAILS_ONCE,
        ranks=1,
        fields={"restart": {"max_restarts": 1}},
        target="statefulset",
    ),
    Scenario(
        "a line of 200 MB",
        "log",
        (CONNECTED, fault("long_line", on=("log",), bytes=200 << 20, count=1), lines(20), *END),
        Expected(absent=(NO_ANSWER,), memory_mb=800),
        ranks=1,
    ),
    Scenario(
        "a slow consumer",
        "log",
        (say("end"),),
        program=("for count in range(2000): print('line', count)", "count += 1", COUNTS),
        pause=0.005,
    ),
    Scenario(
        "64 pods",
        "run",
        (lines(5, STARTUP_TIME), say("end")),
        ranks=64,
        program=("count_until('end')", COUNTS),
        fields={"pod_template": {"terminationGracePeriodSeconds": 5}},
        heavy=True,
    ),
    Scenario(
        "run deleted in the meantime",
        "run",
        (CONNECTED, fault("hang"), drop(), delete_run, clear("hang")),
        Expected("Failed", "Cancelled", 130, counts=False),
    ),
    Scenario(
        "run finished in the meantime",
        "run",
        (CONNECTED, fault("hang"), drop(), say("end"), run_ended, clear("hang")),
    ),
    Scenario(
        "run suspended in the meantime",
        "run",
        (CONNECTED, fault("hang"), drop(), suspend_run, clear("hang"), reported("Suspended"), resume_run, *END),
        Expected(starts=2),
    ),
    Scenario(
        "401 for more than 60 s",
        "credentials",
        (CONNECTED, fault("refuse", status=401), drop()),
        Expected("", "", 3, error="refuses the credentials", counts=False, messages=(NO_ANSWER,)),
        ranks=1,
        timeout=110,
        afterwards=(run_continues,),
    ),
)

SCENARIOS = (*FIVE_FAULTS, *OTHERS)
