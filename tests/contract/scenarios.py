"""The scenarios of the contract, as data: what happens to a run that is followed, and what the user is to see.

docs/testing/contract.md says which behaviour is right and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.many import RESULT
from tests.cluster.stage import Stage
from tests.contract.outcome import Outcome, counted_last, numbered
from tests.contract.steps import (
    COMES_UP,
    Step,
    delete_run,
    drop,
    fault,
    lines,
    mend,
    pause,
    renew_credentials,
    requested,
    resume_run,
    run_ended,
    run_goes_on,
    say,
    start_server,
    stop_server,
    suspend_run,
    told,
)

NO_ANSWER = "does not answer"
"""Said of a server; it is reported after 10 seconds."""
COUNTS = "if rank == 0: " + RESULT.format("{'lines': count}")
SUCCEEDS = ("count_until('end')", COUNTS)
FAILS_ONCE = ("if attempt == 0: count_until('fail')", "if attempt == 0: sys.exit(3)", "count_until('end')", COUNTS)
LOST_LINES = r"pod \S+: .*\blogs?\b.* (lost|gone|removed|cannot be read|missing)"


@dataclass(frozen=True)
class Expected:
    """What a user is to see.

    Args:
        phase, failure, exit_code: as in Outcome.
        error: a part of the error with which the wait ends before the run; empty: it does not.
        counts: the result is the number of lines that rank 0 printed since its last start.
        starts: how often each rank begins to count its lines.
        lost: of how many of these counts the beginning or the end may be missing, because its log is gone.
        said: patterns, for each of which exactly one sentence is told.
        unsaid: patterns of sentences that are not told.
        memory_mb: the most memory that the interface's process may have.
    """

    phase: str = "Succeeded"
    failure: str = ""
    exit_code: int = 0
    error: str = ""
    counts: bool = True
    starts: int = 1
    lost: int = 0
    said: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    memory_mb: float = 400.0

    def numbered(self, lines: list[str]) -> str:
        """What is wrong with the numbered lines of a rank; empty where nothing is."""
        return numbered(lines, self.starts, self.lost)

    def differs(self, outcome: Outcome, lines: list[str]) -> str:
        """How an outcome differs from this; empty where it does not.

        Args:
            outcome: of an interface.
            lines: what it has shown of rank 0.
        """
        if bool(self.error) != bool(outcome.error) or self.error not in outcome.error:
            return f"{outcome} instead of the error {self.error!r}"
        result = {"lines": counted_last(lines)} if self.counts else None
        wanted = Outcome(self.phase, self.failure, result, self.exit_code, outcome.error)
        return "" if outcome == wanted else f"{outcome} instead of {wanted}"


@dataclass(frozen=True, eq=False)  # each is itself only: mappings have no hash
class Scenario:
    """What happens to a run, and what is expected.

    Args:
        name: of the scenario.
        sort: what the fault hits: credentials, server, watch, object, log or run; for the pairwise selection.
        steps: what happens, one after the other, once the interface was started.
        expected: what the user is to see.
        program: lines of Python that each rank runs; see Stage.job.
        ranks: how many, each in a pod of its own.
        fields: of the job, beside the program.
        target: what the run becomes.
        user: how the client shows who it is; see Gate.
        from_the_start: faults that are there before the interface is started: (name, what, fields).
        pause: seconds that the reader of the lines takes for each.
        patience: seconds in which the interface is to end after the last step.
        afterwards: steps that are taken once the interface has ended.
        disruptive: it breaks the cluster, so that nothing else may run on it meanwhile.
        essential: every interface plays it, also in the selection.
        heavy: it is left out of the selection for all but the first interface.
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
    from_the_start: tuple[tuple[str, str, tuple[tuple[str, Any], ...]], ...] = ()
    pause: float = 0.0
    patience: float = 120.0
    afterwards: tuple[Step, ...] = ()
    disruptive: bool = False
    essential: bool = False
    heavy: bool = False

    def job(self, stage: Stage) -> dict[str, Any]:
        """The fields of its job."""
        return stage.job(*self.program, num_nodes=self.ranks, **self.fields)


CONNECTED = lines(10, COMES_UP)
END = (lines(10), say("end"))
"""The interface still shows lines; then the run ends."""

FIVE_FAULTS = (
    Scenario(
        "401 for 6 s after a dropped connection",
        "credentials",
        (CONNECTED, fault("refuse", status=401), drop(), pause(6), mend("refuse"), *END),
        Expected(unsaid=(NO_ANSWER,)),
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
            mend("refuse"),
            lines(10),
            pause(20),
            mend("quiet"),
            *END,
        ),
        Expected(unsaid=(NO_ANSWER,)),
        essential=True,
    ),
    Scenario(
        "server hangs while watches are open",
        "server",
        (CONNECTED, fault("hang"), say("end"), told(NO_ANSWER, 45), mend("hang")),
        Expected(said=(NO_ANSWER,)),
        essential=True,
        patience=45,
    ),
    Scenario(
        "401 while a log is read",
        "log",
        (CONNECTED, fault("refuse", status=401, on=("log",)), drop("log"), pause(6), mend("refuse"), *END),
        Expected(unsaid=(NO_ANSWER, LOST_LINES)),
        essential=True,
    ),
    Scenario(
        "the previous container's log is gone",
        "log",
        (
            CONNECTED,
            fault("hang", on=("log",)),
            fault("no_previous", status=200),
            drop("log"),
            say("fail"),
            requested("log", 1),
            told("started again"),
            mend("hang"),
            *END,
        ),
        Expected(starts=2, lost=1, said=(LOST_LINES,)),
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
        patience=180,
        disruptive=True,
    ),
    Scenario(
        "API server away for 60 s",
        "server",
        (CONNECTED, stop_server, told(NO_ANSWER, 45), pause(45), start_server, *END),
        Expected(said=(NO_ANSWER,)),
        patience=180,
        disruptive=True,
    ),
    Scenario(
        "watch closed every second",
        "watch",
        (CONNECTED, pause(8), *END),
        Expected(unsaid=(NO_ANSWER,)),
        from_the_start=(("close", "close", (("on", ("watch",)), ("seconds", 1.0))),),
    ),
    Scenario(
        "410",
        "watch",
        (CONNECTED, fault("gone", on=("watch",), count=6), drop("watch"), requested("list", 3), *END),
        Expected(unsaid=(NO_ANSWER,)),
    ),
    Scenario(
        "streams with bookmarks only",
        "watch",
        (CONNECTED, fault("bookmarks", on=("watch",)), say("end"), run_ended, pause(15), mend("bookmarks")),
        Expected(unsaid=(NO_ANSWER,)),
    ),
    Scenario(
        "token file rotated",
        "credentials",
        (CONNECTED, renew_credentials, drop(), lines(20), *END),
        Expected(unsaid=(NO_ANSWER,)),
        user="token file",
    ),
    Scenario(
        "token of an exec plugin rotated",
        "credentials",
        (CONNECTED, renew_credentials, drop(), lines(20), *END),
        Expected(unsaid=(NO_ANSWER,)),
        user="exec",
    ),
    Scenario(
        "client certificate renewed",
        "credentials",
        (CONNECTED, renew_credentials, drop(), lines(20), *END),
        Expected(unsaid=(NO_ANSWER,)),
        user="certificate",
    ),
    Scenario(
        "one unparsable object",
        "object",
        (
            CONNECTED,
            fault("unparsable", on=("list", "watch")),
            fault("gone", on=("watch",), count=3),
            drop("watch"),
            requested("list", 2),
            requested("watch", 1),
            *END,
        ),
        Expected(unsaid=(NO_ANSWER,)),
    ),
    Scenario(
        "log connection dropped at random",
        "log",
        (lines(100, COMES_UP), mend("cut"), *END),
        Expected(unsaid=(NO_ANSWER,)),
        from_the_start=(("cut", "cut", (("on", ("log",)), ("bytes", 1500))),),
    ),
    Scenario(
        "two container starts",
        "log",
        (CONNECTED, say("fail"), told("started again"), *END),
        Expected(starts=2),
        program=FAILS_ONCE,
        fields={"restart": {"max_restarts": 1}},
        ranks=1,
        target="statefulset",
    ),
    Scenario(
        "the previous container is gone",
        "log",
        (
            CONNECTED,
            fault("hang", on=("log",)),
            fault("no_previous", status=400),
            drop("log"),
            say("fail"),
            requested("log", 1),
            told("started again"),
            mend("hang"),
            *END,
        ),
        Expected(starts=2, lost=1, said=(LOST_LINES,)),
        program=FAILS_ONCE,
        ranks=1,
        fields={"restart": {"max_restarts": 1}},
        target="statefulset",
    ),
    Scenario(
        "a line of 200 MB",
        "log",
        (CONNECTED, fault("long_line", on=("log",), bytes=200 << 20, count=1), lines(20), *END),
        Expected(unsaid=(NO_ANSWER,), memory_mb=800),
        ranks=1,
        patience=180,
    ),
    Scenario(
        "a slow consumer",
        "log",
        (say("end"),),
        program=("for count in range(2000): print('line', count)", "count += 1", COUNTS),
        pause=0.005,
        patience=240,
    ),
    Scenario(
        "64 pods",
        "run",
        (lines(5, COMES_UP), say("end")),
        ranks=64,
        program=("count_until('end')", COUNTS),
        fields={"pod_template": {"terminationGracePeriodSeconds": 5}},
        patience=300,
        heavy=True,
    ),
    Scenario(
        "run deleted in the meantime",
        "run",
        (CONNECTED, fault("hang"), drop(), delete_run, mend("hang")),
        Expected("Failed", "Cancelled", 130, counts=False),
    ),
    Scenario(
        "run finished in the meantime",
        "run",
        (CONNECTED, fault("hang"), drop(), say("end"), run_ended, mend("hang")),
    ),
    Scenario(
        "run suspended in the meantime",
        "run",
        (CONNECTED, fault("hang"), drop(), suspend_run, mend("hang"), told("Suspended"), resume_run, *END),
        Expected(starts=2),
    ),
    Scenario(
        "401 for more than 60 s",
        "credentials",
        (CONNECTED, fault("refuse", status=401), drop()),
        Expected("", "", 3, error="refuses the credentials", counts=False, said=(NO_ANSWER,)),
        ranks=1,
        patience=110,
        afterwards=(run_goes_on,),
    ),
)

SCENARIOS = (*FIVE_FAULTS, *OTHERS)
