"""What the page shows of a run, as bounded plain data."""

from __future__ import annotations

import json

import pytest

from stepset.watch.present.failure_report import failure_lines
from stepset.watch.state import Failure, FailureKind, Phase, Progress, RankStatus, RunStatus
from stepset_airflow.page.document import LIMIT, RANK_FIELDS, plain
from stepset_airflow.page.history import PHASES, RunHistory

RUN = RunStatus("train-1", "train", "kubernetes", created=100.0, world_size=2)
FAILURE = Failure(
    FailureKind.USER_ERROR,
    "rank 1 exited with code 1",
    "Mend the training code.",
    rank=1,
    pod="node-1",
    exit_code=1,
    error="ValueError: no number",
    tail=("one", "two"),
)


def document_of(status: RunStatus) -> dict[str, object]:
    chronicle = RunHistory({"namespace": "ml"})
    chronicle.see(status, 101.0)
    return chronicle.document(102.0)


def ranks(count: int, line: str = "") -> tuple[RankStatus, ...]:
    return tuple(
        RankStatus(f"rank {rank}", rank, f"node-{rank // 8}", f"machine-{rank // 8}", "Running", last_line=line)
        for rank in range(count)
    )


def test_a_rank_is_a_row_whose_node_is_named_once() -> None:
    document = document_of(RUN.with_(ranks=ranks(16, "hello")))
    assert document["nodes"] == ["machine-0", "machine-1"]
    row = dict(zip(RANK_FIELDS, document["ranks"][9], strict=True))  # type: ignore[index]
    assert row["rank"] == 9
    assert (row["node"], row["state"], row["last_line"]) == (1, "Running", "hello")


@pytest.mark.parametrize("count", [64, 512, 4096])
def test_it_is_bounded_whatever_ranks_print_and_says_what_it_leaves_out(count: int) -> None:
    rows = list(ranks(count, "x" * 5000))
    rows[-1] = RankStatus(f"rank {count - 1}", count - 1, "node-9", state="Failed", exit_code=1, last_line="why")
    document = document_of(RUN.with_(ranks=tuple(rows), notes=("n" * 10_000,) * 100))
    assert len(json.dumps(document)) <= LIMIT + 4096
    assert len(document["ranks"]) + document["hidden"] == count  # type: ignore[arg-type,operator]
    assert any(row[4] == "Failed" for row in document["ranks"]), "who failed is never left out"  # type: ignore[attr-defined]


def test_the_diagnosis_has_the_words_of_every_other_door() -> None:
    document = document_of(RUN.with_(phase=Phase.FAILED, failure=FAILURE))
    failure = document["failure"]
    assert failure["headline"] == "run train-1 failed: UserError: rank 1 exited with code 1"  # type: ignore[index]
    said = "\n".join(failure_lines(FAILURE))
    for _, lines in failure["rows"]:  # type: ignore[index]
        assert all(line in said for line in lines)


def test_a_run_that_was_lost_says_so() -> None:
    failure = document_of(RUN.with_(phase=Phase.LOST))["failure"]
    assert "was lost" in failure["headline"]  # type: ignore[index]


def test_colours_and_what_databases_refuse_are_not_in_a_text() -> None:
    rows = (RankStatus("rank 0", 0, "node-0", last_line="\x1b[1;31mred\x1b[0m \x00\ud800\x07done"),)
    text = json.dumps(document_of(RUN.with_(ranks=rows)))
    assert "red done" in text
    assert "u0000" not in text
    assert "ud800" not in text
    assert plain("\x1b]0;title\x07text") == "text"


def test_a_document_is_json_even_where_a_result_is_not() -> None:
    progress = Progress(step=1, progress=float("nan"), metrics={"loss": float("inf")})
    status = RUN.with_(phase=Phase.SUCCEEDED, result={"loss": float("nan")}, progress=progress)
    json.dumps(document_of(status), allow_nan=False)


def test_the_time_line_tells_what_came_before_anybody_looked() -> None:
    document = document_of(RUN.with_(phase=Phase.RUNNING, started=100.5))
    assert [(each["phase"], each["at"]) for each in document["timeline"]] == [  # type: ignore[index,attr-defined]
        ("Pending", 100.0),
        ("Running", 100.5),
    ]


def test_whoever_goes_on_with_a_run_goes_on_with_its_time_line() -> None:
    first = RunHistory({})
    first.see(RUN.with_(reason="Queued"), 101.0)
    second = RunHistory({}, json.loads(json.dumps(first.document(102.0))))
    second.see(RUN.with_(reason="Queued"), 110.0)
    second.see(RUN.with_(phase=Phase.RUNNING, started=120.0), 121.0)
    second.see(RUN.with_(phase=Phase.SUCCEEDED, started=120.0, finished=150.0), 151.0)
    timeline = [(each["phase"], each["at"]) for each in second.document(152.0)["timeline"]]
    assert timeline == [("Pending", 100.0), ("Running", 120.0), ("Succeeded", 150.0)]


def test_another_run_of_the_task_begins_anew() -> None:
    first = RunHistory({})
    first.see(RUN.with_(phase=Phase.FAILED, failure=FAILURE), 101.0)
    second = RunHistory({}, first.document(102.0))
    second.see(RUN.with_(name="train-2", created=200.0), 200.0)
    assert [each["phase"] for each in second.document(201.0)["timeline"]] == ["Pending"]


def test_of_a_run_that_restarts_for_ever_the_first_and_last_phases_are_kept() -> None:
    chronicle = RunHistory({})
    for attempt in range(200):
        chronicle.see(RUN.with_(phase=Phase.RUNNING, attempt=attempt), 101.0 + 2 * attempt)
        chronicle.see(RUN.with_(phase=Phase.RESTARTING, attempt=attempt), 102.0 + 2 * attempt)
    timeline = chronicle.document(1000.0)["timeline"]
    assert len(timeline) == PHASES
    assert timeline[0]["phase"] == "Pending"
    assert timeline[-1]["attempt"] == 199


def test_what_a_rank_is_is_urgent_and_what_it_prints_is_not() -> None:
    chronicle = RunHistory({})
    assert chronicle.see(RUN.with_(phase=Phase.RUNNING, ranks=ranks(2, "a")), 101.0)
    assert not chronicle.see(RUN.with_(phase=Phase.RUNNING, ranks=ranks(2, "b")), 102.0)
    failed = (*ranks(1), RankStatus("rank 1", 1, "node-0", state="Failed"))
    assert chronicle.see(RUN.with_(phase=Phase.RUNNING, ranks=failed), 103.0)
