"""`ListWatch` knows the state of a collection after cut connections, expired versions and repeated events."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stepset.watch.list_watch import Change, ListWatch
from stepset.watch.retries import LONGEST_DELAY


def pod(name: str, version: int, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **more}


def listing(version: int, *pods: dict[str, Any], more: str = "") -> dict[str, Any]:
    items = [{key: value for key, value in each.items() if key not in ("apiVersion", "kind")} for each in pods]
    about = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return {"apiVersion": "v1", "kind": "PodList", "metadata": about, "items": items}


def line(verb: str, each: dict[str, Any]) -> bytes:
    return json.dumps({"type": verb, "object": each}).encode() + b"\n"


def summary(changes: list[Change]) -> list[tuple[str, str, bool]]:
    return [(each.verb, each.object["metadata"]["name"], each.observed) for each in changes]


class TestList:
    def test_is_requested_first_in_pages_and_all_objects_are_added(self) -> None:
        feed = ListWatch()
        assert not feed.next_request().watch
        assert feed.listed(listing(7, pod("a", 1), more="next")) == []
        assert feed.next_request().query["continue"] == "next"
        assert summary(feed.listed(listing(7, pod("b", 2)))) == [("ADDED", "a", True), ("ADDED", "b", True)]
        assert feed.next_request().watch and feed.next_request().query["resourceVersion"] == "7"

    def test_sets_the_kind_of_its_items(self) -> None:
        (change,) = ListWatch().listed(listing(7, pod("a", 1)))
        assert (change.object["apiVersion"], change.object["kind"]) == ("v1", "Pod")

    def test_omits_objects_that_are_not_wanted(self) -> None:
        feed = ListWatch(lambda each: each["metadata"]["name"] != "b")
        assert summary(feed.listed(listing(7, pod("a", 1), pod("b", 2)))) == [("ADDED", "a", True)]
        assert feed.data(line("MODIFIED", pod("b", 9))) == []

    def test_omits_items_that_are_not_objects(self) -> None:
        feed = ListWatch()
        odd = {**listing(7, pod("a", 1)), "metadata": {"resourceVersion": "7"}}
        odd["items"] += [None, 5, "text", [], {}, {"metadata": None}, {"metadata": {"uid": 5}}]
        assert summary(feed.listed(odd)) == [("ADDED", "a", True)]


class TestWatch:
    def test_continues_from_the_last_version_including_bookmarks(self) -> None:
        feed = ListWatch()
        feed.listed(listing(7))
        assert summary(feed.data(line("ADDED", pod("a", 8)))) == [("ADDED", "a", True)]
        assert feed.next_request().query["resourceVersion"] == "8"
        assert feed.data(line("BOOKMARK", pod("", 20))) == []
        assert feed.next_request().query["resourceVersion"] == "20"

    def test_drops_an_incomplete_line_and_requests_it_again(self) -> None:
        feed = ListWatch()
        feed.listed(listing(7))
        whole = line("ADDED", pod("a", 8))
        assert feed.data(whole[:20]) == []
        assert feed.next_request().query["resourceVersion"] == "7"
        assert summary(feed.data(whole)) == [("ADDED", "a", True)]

    def test_lists_again_after_a_410_and_returns_the_differences(self) -> None:
        feed = ListWatch()
        feed.listed(listing(7, pod("stays", 1), pod("changes", 2), pod("goes", 3)))
        expired = {"kind": "Status", "code": 410, "reason": "Expired"}
        assert feed.data(line("ERROR", expired)) == []
        assert not feed.next_request().watch and "resourceVersion" not in feed.next_request().query
        changes = feed.listed(listing(30, pod("stays", 1), pod("changes", 20), pod("comes", 21)))
        assert summary(changes) == [("DELETED", "goes", False), ("ADDED", "comes", True), ("MODIFIED", "changes", True)]

    def test_lists_again_after_a_line_that_is_not_an_event(self) -> None:
        feed = ListWatch()
        feed.listed(listing(7))
        body = line("ADDED", pod("a", 8)) + b"<html>Bad gateway</html>\n" + line("ADDED", pod("c", 10))
        assert summary(feed.data(body)) == [("ADDED", "a", True)]
        assert not feed.next_request().watch

    def test_lists_again_after_an_endless_line(self) -> None:
        feed = ListWatch()
        feed.listed(listing(7))
        for _ in range(20):
            feed.data(b"x" * (1 << 20))
        assert not feed.next_request().watch


class TestFailures:
    def test_delay_grows_up_to_a_limit_and_is_reset_by_a_response(self) -> None:
        feed = ListWatch()
        delays = [feed.retries.failed() for _ in range(12)]
        assert delays == sorted(delays) and delays[0] < 1 and delays[-1] == LONGEST_DELAY
        feed.listed(listing(7))
        assert feed.retries.failed() == delays[0]
        assert feed.retries.failed() > delays[0]
        feed.retries.succeeded()
        assert feed.retries.failed() == delays[0]

    def test_answered_is_false_for_errors_and_incomplete_lines(self) -> None:
        feed = ListWatch()
        feed.next_request()
        feed.listed(listing(7))
        assert feed.answered
        feed.next_request()
        assert not feed.answered
        feed.data(line("ERROR", {"kind": "Status", "code": 500, "message": "etcdserver: leader changed"}))
        feed.data(line("ADDED", pod("a", 8))[:20])
        assert not feed.answered and feed.next_request().watch
        feed.data(line("BOOKMARK", pod("", 20)))
        assert feed.answered


steps = st.lists(
    st.tuples(st.sampled_from(["set", "delete", "cut", "expire"]), st.sampled_from("abc"), st.integers(1, 40)),
    max_size=30,
)


@given(steps)
def test_any_history_ends_with_the_objects_of_the_server(history: list[Any]) -> None:
    server: dict[str, dict[str, Any]] = {}
    known: dict[str, str] = {}
    events: list[tuple[int, bytes]] = []
    feed, version = ListWatch(), 1

    def apply(changes: list[Change]) -> None:
        for change in changes:
            metadata = change.object["metadata"]
            if change.verb == "DELETED":
                known.pop(metadata["name"], None)
            else:
                known[metadata["name"]] = metadata["resourceVersion"]

    def catch_up(cut_at: int | None = None) -> None:
        request = feed.next_request()
        if not request.watch:
            apply(feed.listed(listing(version, *server.values())))
            return
        since = int(request.query["resourceVersion"])
        body = b"".join(text for at, text in events if at > since)[:cut_at]
        for start in range(0, len(body), 17):
            apply(feed.data(body[start : start + 17]))

    for what, name, number in history:
        version += 1
        if what == "set":
            verb = "MODIFIED" if name in server else "ADDED"
            server[name] = pod(name, version)
            events.append((version, line(verb, server[name])))
        elif what == "delete" and name in server:
            events.append((version, line("DELETED", {**server.pop(name), **pod(name, version)})))
        elif what == "cut":
            catch_up(cut_at=number)
        elif what == "expire":
            feed.expired()
    catch_up()
    catch_up()
    assert known == {name: each["metadata"]["resourceVersion"] for name, each in server.items()}
