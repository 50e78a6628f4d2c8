"""A collection followed by list and watch: whatever is cut, forgotten or repeated, what is known is what is there."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stepset.watch.cluster.change import Change
from stepset.watch.list_watch import LONGEST_DELAY, ListWatch


def pod(name: str, version: int, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **more}


def listing(version: int, *pods: dict[str, Any], more: str = "") -> dict[str, Any]:
    items = [{key: value for key, value in each.items() if key not in ("apiVersion", "kind")} for each in pods]
    about = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return {"apiVersion": "v1", "kind": "PodList", "metadata": about, "items": items}


def line(verb: str, each: dict[str, Any]) -> bytes:
    return json.dumps({"type": verb, "object": each}).encode() + b"\n"


def told(changes: list[Change]) -> list[tuple[str, str, bool]]:
    return [(each.verb, each.object["metadata"]["name"], each.witnessed) for each in changes]


class TestTheList:
    def test_comes_first_in_pages_and_all_of_it_is_new(self) -> None:
        feed = ListWatch()
        assert not feed.next_request().watch
        assert feed.listed(listing(7, pod("a", 1), more="next")) == []
        assert feed.next_request().query["continue"] == "next"
        assert told(feed.listed(listing(7, pod("b", 2)))) == [("ADDED", "a", True), ("ADDED", "b", True)]
        assert feed.next_request().watch and feed.next_request().query["resourceVersion"] == "7"

    def test_gives_its_items_the_kind_that_they_leave_out(self) -> None:
        (change,) = ListWatch().listed(listing(7, pod("a", 1)))
        assert (change.object["apiVersion"], change.object["kind"]) == ("v1", "Pod")

    def test_leaves_out_what_concerns_nobody(self) -> None:
        feed = ListWatch(lambda each: each["metadata"]["name"] != "b")
        assert told(feed.listed(listing(7, pod("a", 1), pod("b", 2)))) == [("ADDED", "a", True)]
        assert feed.data(line("MODIFIED", pod("b", 9))) == []

    def test_leaves_out_items_that_are_no_objects(self) -> None:
        feed = ListWatch()
        odd = {**listing(7, pod("a", 1)), "metadata": {"resourceVersion": "7"}}
        odd["items"] += [None, 5, "text", [], {}, {"metadata": None}, {"metadata": {"uid": 5}}]
        assert told(feed.listed(odd)) == [("ADDED", "a", True)]


class TestTheWatch:
    def test_goes_on_from_the_last_that_was_heard_bookmarks_included(self) -> None:
        feed = ListWatch()
        feed.listed(listing(7))
        assert told(feed.data(line("ADDED", pod("a", 8)))) == [("ADDED", "a", True)]
        assert feed.next_request().query["resourceVersion"] == "8"
        assert feed.data(line("BOOKMARK", pod("", 20))) == []
        assert feed.next_request().query["resourceVersion"] == "20"

    def test_a_line_cut_off_by_the_end_of_a_connection_is_dropped_and_heard_again(self) -> None:
        feed = ListWatch()
        feed.listed(listing(7))
        whole = line("ADDED", pod("a", 8))
        assert feed.data(whole[:20]) == []
        assert feed.next_request().query["resourceVersion"] == "7"
        assert told(feed.data(whole)) == [("ADDED", "a", True)]

    def test_what_the_server_has_forgotten_is_listed_anew_and_told_as_what_has_changed(self) -> None:
        feed = ListWatch()
        feed.listed(listing(7, pod("stays", 1), pod("changes", 2), pod("goes", 3)))
        gone = {"kind": "Status", "code": 410, "reason": "Expired"}
        assert feed.data(line("ERROR", gone)) == []
        assert not feed.next_request().watch and "resourceVersion" not in feed.next_request().query
        changes = feed.listed(listing(30, pod("stays", 1), pod("changes", 20), pod("comes", 21)))
        assert told(changes) == [("DELETED", "goes", False), ("ADDED", "comes", True), ("MODIFIED", "changes", True)]

    def test_after_words_that_are_no_servers_everything_is_listed_anew(self) -> None:
        feed = ListWatch()
        feed.listed(listing(7))
        body = line("ADDED", pod("a", 8)) + b"<html>Bad gateway</html>\n" + line("ADDED", pod("c", 10))
        assert told(feed.data(body)) == [("ADDED", "a", True)]
        assert not feed.next_request().watch

    def test_a_server_that_never_ends_a_line_does_not_fill_memory(self) -> None:
        feed = ListWatch()
        feed.listed(listing(7))
        for _ in range(20):
            feed.data(b"x" * (1 << 20))
        assert not feed.next_request().watch


class TestPatience:
    def test_grows_with_each_failure_up_to_a_limit_and_ends_with_the_first_answer(self) -> None:
        feed = ListWatch()
        delays = [feed.failed() for _ in range(12)]
        assert delays == sorted(delays) and delays[0] < 1 and delays[-1] == LONGEST_DELAY
        feed.listed(listing(7))
        assert feed.failed() == delays[0]
        assert feed.failed() > delays[0]
        feed.recovered()
        assert feed.failed() == delays[0]

    def test_an_answer_is_what_can_be_built_on_and_not_an_error_or_the_half_of_one(self) -> None:
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
def test_whatever_happens_on_the_way_the_follower_ends_with_what_the_server_has(history: list[Any]) -> None:
    server: dict[str, dict[str, Any]] = {}
    known: dict[str, str] = {}
    events: list[tuple[int, bytes]] = []
    feed, version = ListWatch(), 1

    def hear(changes: list[Change]) -> None:
        for change in changes:
            metadata = change.object["metadata"]
            if change.verb == "DELETED":
                known.pop(metadata["name"], None)
            else:
                known[metadata["name"]] = metadata["resourceVersion"]

    def catch_up(cut_at: int | None = None) -> None:
        ask = feed.next_request()
        if not ask.watch:
            hear(feed.listed(listing(version, *server.values())))
            return
        since = int(ask.query["resourceVersion"])
        body = b"".join(text for at, text in events if at > since)[:cut_at]
        for start in range(0, len(body), 17):
            hear(feed.data(body[start : start + 17]))

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
