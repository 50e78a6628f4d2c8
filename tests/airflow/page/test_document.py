"""The document of a run's page: bounded plain data."""

from __future__ import annotations

import json

import pytest

from stepset.run_status import Failure, FailureKind, Phase, Progress, RankStatus, RunStatus
from stepset.watch.present.failure_report import failure_lines
from stepset.watch.present.sentences import resume_sentence
from stepset_airflow.page.document import LIMIT, RANK_FIELDS, plain
from stepset_airflow.page.history import PHASES, RunHistory

RUN = RunStatus("train-1", "train", "kubernetes", created=100.0, world_size=2)
FAILURE = Failure(
    FailureKind.USER_ERROR,
    "rank 1 exited with code 1",
    "Fix the training code.",
    rank=1,
    pod="node-1",
    exit_code=1,
    error="ValueError: no number",
    tail=("one", "two"),
)


def document_of(status: RunStatus) -> dict[str, object]:
    history = RunHistory({"namespace": "ml"})
    history.record(status, 101.0)
    return history.document(102.0)


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
def test_the_document_is_bounded_and_counts_the_ranks_that_it_leaves_out(count: int) -> None:
    rows = list(ranks(count, "x" * 5000))
    rows[-1] = RankStatus(f"rank {count - 1}", count - 1, "node-9", state="Failed", exit_code=1, last_line="why")
    document = document_of(RUN.with_(ranks=tuple(rows), notes=("n" * 10_000,) * 100))
    assert len(json.dumps(document)) <= LIMIT + 4096
    assert len(document["ranks"]) + document["hidden"] == count  # type: ignore[arg-type,operator]
    assert any(row[4] == "Failed" for row in document["ranks"]), "a failed rank is never left out"  # type: ignore[attr-defined]


def test_the_diagnosis_has_the_text_of_all_other_interfaces() -> None:
    document = document_of(RUN.with_(phase=Phase.FAILED, failure=FAILURE))
    failure = document["failure"]
    assert failure["headline"] == "run train-1 failed: UserError: rank 1 exited with code 1"  # type: ignore[index]
    text = "\n".join(failure_lines(FAILURE))
    for _, lines in failure["rows"]:  # type: ignore[index]
        assert all(line in text for line in lines)


def test_a_lost_run_is_shown_as_lost() -> None:
    failure = document_of(RUN.with_(phase=Phase.LOST))["failure"]
    assert "was lost" in failure["headline"]  # type: ignore[index]


def test_colours_and_characters_that_databases_refuse_are_removed_from_texts() -> None:
    rows = (RankStatus("rank 0", 0, "node-0", last_line="\x1b[1;31mred\x1b[0m \x00\ud800\x07done"),)
    text = json.dumps(document_of(RUN.with_(ranks=rows)))
    assert "red done" in text
    assert "u0000" not in text
    assert "ud800" not in text
    assert plain("\x1b]0;title\x07text") == "text"


def test_the_document_is_valid_json_even_if_a_result_is_not() -> None:
    progress = Progress(step=1, progress=float("nan"), metrics={"loss": float("inf")})
    status = RUN.with_(phase=Phase.SUCCEEDED, result={"loss": float("nan")}, progress=progress)
    json.dumps(document_of(status), allow_nan=False)


def test_the_time_line_contains_the_phases_before_the_first_observation() -> None:
    document = document_of(RUN.with_(phase=Phase.RUNNING, started=100.5))
    assert [(each["phase"], each["at"]) for each in document["timeline"]] == [  # type: ignore[index,attr-defined]
        ("Pending", 100.0),
        ("Running", 100.5),
    ]


def test_a_successor_continues_the_time_line_of_a_run() -> None:
    first = RunHistory({})
    first.record(RUN.with_(reason="Queued"), 101.0)
    second = RunHistory({}, json.loads(json.dumps(first.document(102.0))))
    second.record(RUN.with_(reason="Queued"), 110.0)
    second.record(RUN.with_(phase=Phase.RUNNING, started=120.0), 121.0)
    second.record(RUN.with_(phase=Phase.SUCCEEDED, started=120.0, finished=150.0), 151.0)
    timeline = [(each["phase"], each["at"]) for each in second.document(152.0)["timeline"]]
    assert timeline == [("Pending", 100.0), ("Running", 120.0), ("Succeeded", 150.0)]


def test_another_run_of_the_task_starts_a_new_time_line() -> None:
    first = RunHistory({})
    first.record(RUN.with_(phase=Phase.FAILED, failure=FAILURE), 101.0)
    second = RunHistory({}, first.document(102.0))
    second.record(RUN.with_(name="train-2", created=200.0), 200.0)
    assert [each["phase"] for each in second.document(201.0)["timeline"]] == ["Pending"]


def test_the_first_and_last_phases_of_a_run_with_many_restarts_are_kept() -> None:
    history = RunHistory({})
    for attempt in range(200):
        history.record(RUN.with_(phase=Phase.RUNNING, attempt=attempt), 101.0 + 2 * attempt)
        history.record(RUN.with_(phase=Phase.RESTARTING, attempt=attempt), 102.0 + 2 * attempt)
    timeline = history.document(1000.0)["timeline"]
    assert len(timeline) == PHASES
    assert timeline[0]["phase"] == "Pending"
    assert timeline[-1]["attempt"] == 199


def test_the_state_of_a_rank_is_urgent_and_its_output_is_not() -> None:
    history = RunHistory({})
    assert history.record(RUN.with_(phase=Phase.RUNNING, ranks=ranks(2, "a")), 101.0)
    assert not history.record(RUN.with_(phase=Phase.RUNNING, ranks=ranks(2, "b")), 102.0)
    failed = (*ranks(1), RankStatus("rank 1", 1, "node-0", state="Failed"))
    assert history.record(RUN.with_(phase=Phase.RUNNING, ranks=failed), 103.0)


def no_room(missing: int) -> RunStatus:
    trouble = Failure(FailureKind.UNSCHEDULABLE, f"no room: {missing} Insufficient cpu", "Request less.")
    return RUN.with_(reason="Unschedulable", trouble=trouble)


def test_a_problem_that_lasts_names_the_event_that_its_card_replaces() -> None:
    history = RunHistory({})
    history.record(no_room(2), 101.0)
    history.record(no_room(13), 105.0)  # the same problem with other numbers
    document = history.document(106.0)
    event = document["events"][document["trouble"]["event"]]
    assert (event["kind"], event["at"]) == ("HeldUp", 101.0)
    assert document["trouble"]["summary"] == "Unschedulable: no room: 13 Insufficient cpu"
    history.record(RUN.with_(phase=Phase.RUNNING), 107.0)
    document = history.document(108.0)
    assert document["trouble"] is None and event in document["events"]


def test_a_successor_repeats_neither_a_problem_with_other_numbers_nor_a_note() -> None:
    first = RunHistory({})
    first.record(no_room(2).with_(notes=("restart 1: a",)), 101.0)
    second = RunHistory({}, json.loads(json.dumps(first.document(102.0))))
    second.record(no_room(3).with_(notes=("restart 1: a", "restart 2: a")), 110.0)
    events = [each["text"] for each in second.document(111.0)["events"] if each["kind"] != "PhaseChanged"]
    assert events == [
        "restart 1: a",
        "trouble: Unschedulable: no room: 2 Insufficient cpu. Request less.",
        "restart 2: a",
    ]


def test_the_time_in_a_note_is_stored_as_a_time() -> None:
    created, written = 1_800_000_000.0, 1_800_000_000.0 - 86_400 * 3
    note = resume_sentence("step-118, written 10:00", written, created)
    document = document_of(RUN.with_(created=created, notes=(note,)))
    (event,) = (each for each in document["events"] if each["kind"] == "Note")  # type: ignore[attr-defined]
    assert event["text"] == "resuming from step-118, written 10:00, written"
    assert event["time"] == written


def test_a_triggerer_that_does_not_know_the_parameters_keeps_them() -> None:
    first = RunHistory({"parameters": [["lr", "0.1"]]})
    first.record(RUN, 101.0)
    second = RunHistory({"namespace": "ml"}, json.loads(json.dumps(first.document(102.0))))
    second.record(RUN.with_(phase=Phase.RUNNING), 110.0)
    assert second.document(111.0)["parameters"] == [["lr", "0.1"]]
    other = RunHistory({"namespace": "ml"}, first.document(102.0))
    other.record(RUN.with_(name="train-2"), 110.0)
    assert "parameters" not in other.document(111.0)
