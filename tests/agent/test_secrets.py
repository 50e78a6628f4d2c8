"""Ranks print, report and return the values of their Secrets; what agents and readers of their output store of it."""

from __future__ import annotations

import base64
import json

import pytest

from stepset.watch.lines import Splitter
from stepset.watch.state.reports import Reports
from stepset.watch.state.termination_message import read_termination_message
from tests.agent.pods import Both, Ended, Pod

TOKEN = 'hf-Zm9v"YmFy+9876543210'
KEY = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA7b1\n-----END KEY-----"
PARTS = (TOKEN[:12], TOKEN[-12:], "MIIEpAIBAAKCAQEA7b1", base64.b64encode(TOKEN.encode()).decode())
ENV = {"TOKEN": TOKEN, "KEY": KEY, "PIN": "1234"}
IN_JSON = """$(printf %s "$TOKEN" | sed 's/"/\\\\"/g')"""
SECRETS = {"secrets": ["TOKEN", "KEY", "PIN", "ABSENT"]}


def leaks(stored: bytes | str) -> list[str]:
    """The parts of values that a stored text contains, also in its escapes."""
    text = stored.decode("utf-8", "replace") if isinstance(stored, bytes) else stored
    return [part for part in PARTS if part in text or json.dumps(part)[1:-1] in text]


def outside_lines(ended: Ended) -> bytes:
    """What an agent printed, without the lines of ranks that are no reports of progress."""
    kept = [line for line in ended.out.split(b"\n") if line.startswith(b"[stepset") or b'"stepset"' in line]
    return b"\n".join(kept)


@pytest.mark.parametrize(
    "printed",
    [
        'echo "ValueError: $TOKEN" >&2',
        'printf "Traceback (most recent call last):\\n  x\\nValueError: %s\\n" "$KEY"',
        # The value crosses every limit: of a line of the tail, of the error, of the termination message.
        'printf "Error: %0390d$TOKEN\\n" 0; printf "Error: %0990d$TOKEN\\n" 0; yes "Error $TOKEN" | head -n 500',
        'echo "Error: $(printf %s "$TOKEN" | base64)"',
        f"""echo '{{"message": {{"message": "RuntimeError: '"{IN_JSON}"'"}}}}' > $TORCHELASTIC_ERROR_FILE""",
        f"""printf '{{"stepset": {{"metrics": {{"%s": 1}}}}}}\\n' "{IN_JSON}"; echo Error""",
    ],
    ids=["line", "traceback", "limits", "base64", "error file", "progress"],
)
def test_a_failure_contains_no_value(both: Both, printed: str) -> None:
    ended = both.run(f"{printed}; exit 3", env=ENV, **SECRETS)
    assert ended.verdict["exit_code"] == 3
    assert "***" in ended.log.decode() + outside_lines(ended).decode()
    assert leaks(ended.log) == []
    assert leaks(outside_lines(ended)) == []


def test_lines_are_printed_as_they_are(both: Both) -> None:
    ended = both.run('echo "token $TOKEN"; exit 0', env=ENV, **SECRETS)
    assert ended.lines("rank 0") == [f"token {TOKEN}".encode()]
    assert ended.event("redacted")["text"] == "token ***"


def test_a_state_of_a_progress_bar_with_a_value_is_not_printed(both: Both) -> None:
    bar = """printf '\\rplain'; for n in 1 2 3 4 5 6 7 8; do sleep 0.3; printf '\\r%s' "$n $TOKEN"; done; echo"""
    ended = both.run(bar, env=ENV, **SECRETS)
    states = [line for line in ended.out.split(b"\n") if line.startswith(b"[rank 0~] ")]
    assert states and leaks(b"\n".join(states)) == []
    assert ended.event("redacted")["text"] == "8 ***"


def test_a_result_contains_no_value(both: Both) -> None:
    script = """python3 -c 'import json, os
open(os.environ["STEPSET_RESULT_FILE"], "w").write(json.dumps({"url": "https://x?t=" + os.environ["TOKEN"],
  "n": [os.environ["KEY"], 1], "pin": os.environ["PIN"]}))'"""
    ended = both.run(script, env=ENV, **SECRETS)
    assert json.loads(ended.log) == {"url": "https://x?t=***", "n": ["***", 1], "pin": "1234"}
    assert ended.event("result")["result"] == json.loads(ended.log)


def test_a_result_without_a_value_keeps_its_bytes(both: Both) -> None:
    ended = both.run("printf '{\"a\":  1.0}' > $STEPSET_RESULT_FILE", env=ENV, **SECRETS)
    assert ended.log == b'{"a":  1.0}'


def test_the_contents_of_named_files_are_values(pod: Pod) -> None:
    (pod.directory / "key").write_text(KEY)
    files = [str(pod.directory / "key"), "/does/not/exist"]
    ended = pod.run_ranks(
        f"cat {pod.directory}/key; echo; echo ValueError: MIIEpAIBAAKCAQEA7b1; exit 1", secret_files=files
    )
    assert leaks(ended.log) == []
    assert ended.verdict["error"] == "ValueError: ***"


def test_the_kubelet_never_stores_the_end_of_the_log_of_a_pod_with_secrets(pod: Pod) -> None:
    """For an empty message it would, if the agent is killed or stops its pod."""
    with pod.start_ranks('echo "token $TOKEN"; sleep 600', env=ENV, **SECRETS) as agent:
        agent.wait_for_line(b"token")
        agent.process.kill()
        killed = agent.end()
    with pod.start_ranks('echo "token $TOKEN"; sleep 600', env=ENV, **SECRETS) as agent:
        agent.wait_for_line(b"token")
        agent.signal(15)
        stopped = agent.end()
    for ended in (killed, stopped):
        assert ended.exit_code != 0
        message = read_termination_message(ended.log.decode(), 137, agent=True)
        assert ended.log != b""
        assert (message.failed, message.events, message.tails) == (None, (), {})
    assert pod.run_ranks("exit 0", env=ENV, **SECRETS).log == b""


def test_followers_store_last_lines_without_the_value(both: Both) -> None:
    script = 'for n in 1 2 3; do echo "$n $TOKEN"; done; echo plain; printf "last %s" "$TOKEN"; exit 0'
    ended = both.run(script, env=ENV, **SECRETS)
    reports = Reports()
    splitter = Splitter("node 0")
    for at in range(0, len(ended.out), 50):
        reports.see("uid", splitter.feed(ended.out[at : at + 50]))
    report = reports.of("uid")
    assert report.tail("rank 0") == ("1 ***", "2 ***", "3 ***", "plain", "last ***")
    assert report.last_line("rank 0") == "last ***"
    assert read_termination_message(ended.out.decode(), 1, agent=True).tails["rank 0"] == report.tail("rank 0")
