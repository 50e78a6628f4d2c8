"""A value of a text field is the text that the user wrote, or an error that shows how to write it as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepset.cli.arguments.overrides import parse_setting, with_field
from stepset.errors import BadInputError
from stepset.spec import TrainingJob, load_job, parse_job
from stepset.spec.yamlfile import read_mapping


def _load(text: str) -> TrainingJob:
    return parse_job(read_mapping(f"framework: torch\n{text}", ""))


def _error(text: str) -> str:
    with pytest.raises(BadInputError) as caught:
        _load(text)
    return str(caught.value)


# Scalar -> what YAML reads.
CHANGED = {
    "1.10": "1.1",
    "017": "15",
    "12:30": "750",
    "0x10": "16",
    "0b11": "3",
    "1_000": "1000",
    "+1": "1",
    ".5": "0.5",
    "1.0e+3": "1000.0",
    ".inf": "inf",
    "1:30.5": "90.5",
    "yes": "true",
    "True": "true",
    "off": "false",
    "2026-11-25": "a date",
    "2026-11-25 12:30:00": "a date",
}
# Field of a job -> its place in messages. SCALAR is replaced by a scalar.
FIELDS = {
    "env: {A: SCALAR}\nscript: a.py": "env.A",
    "env: {A: {value: SCALAR, override: true}}\nscript: a.py": "env.A.value",
    "env: {A: {secret: SCALAR, key: k}}\nscript: a.py": "env.A.secret",
    "args: [a, SCALAR]\nscript: a.py": "args.1",
    "command: [SCALAR]": "command.0",
    "roles: [{name: a, command: [b, SCALAR]}]\nscript: a.py": "roles.0.command.1",
    "roles: [{name: a, image: b, args: [SCALAR]}]\nscript: a.py": "roles.0.args.0",
    "roles: [{name: a, image: b, env: {A: SCALAR}}]\nscript: a.py": "roles.0.env.A",
    "labels: {a: SCALAR}\nscript: a.py": "labels.a",
    "image: SCALAR\nscript: a.py": "image",
    "module: SCALAR": "module",
    "scheduling: {node_selector: {a: SCALAR}}\nscript: a.py": "scheduling.node_selector.a",
    "scheduling: {tolerations: [{key: a, value: SCALAR}]}\nscript: a.py": "scheduling.tolerations.0.value",
    "pod_template: {metadata: {annotations: {a: SCALAR}}}\nscript: a.py": "pod_template.metadata.annotations.a",
    "pod_template: {containers: [{name: node, env: [{name: A, value: SCALAR}]}]}\nscript: a.py": (
        "pod_template.containers.0.env.0.value"
    ),
    "pod_template: {containers: [{name: node, args: [SCALAR]}]}\nscript: a.py": "pod_template.containers.0.args.0",
}


@pytest.mark.parametrize("scalar", CHANGED)
def test_a_value_that_yaml_changes_is_rejected_with_the_quoted_form(scalar: str) -> None:
    for field, place in FIELDS.items():
        message = f'{place}: {scalar} is read as {CHANGED[scalar]}; write "{scalar}"'
        assert _error(field.replace("SCALAR", f"{scalar}")) == message
        _load(field.replace("SCALAR", f'"{"a" if place.endswith(("secret", ".value")) else scalar}"'))


def test_a_rendezvous_setting_is_text_too() -> None:
    job = "script: a.py\nframework: {kind: torch, elastic: {rdzv_conf: {timeout: SCALAR}}}".replace
    with pytest.raises(BadInputError) as caught:
        parse_job(read_mapping(job("SCALAR", "1_000"), ""))
    assert str(caught.value) == 'framework.elastic.rdzv_conf.timeout: 1_000 is read as 1000; write "1_000"'
    parse_job(read_mapping(job("SCALAR", "60"), ""))


@pytest.mark.parametrize("scalar", ["8", "-3", "0.5", "12.0", "1e-05", "true", "false", "12345678901234567890123"])
def test_a_number_or_boolean_that_reads_back_as_it_was_written_is_text(scalar: str) -> None:
    assert _load(f"env: {{A: {scalar}}}\nscript: a.py").to_dict()["env"] == {"A": scalar}


@pytest.mark.parametrize("scalar", ["1e3", "08", "0o17", "12:3x", "=", "<<", "y", "1.2.3", "2026-11", "0x1p"])
def test_text_that_only_other_readers_change_is_text(scalar: str) -> None:
    job = _load(f"env: {{A: {scalar}}}\nargs: [{scalar}]\nscript: a.py")
    assert (job.to_dict()["env"], job.args) == ({"A": scalar}, [scalar])


@pytest.mark.parametrize("number", ["1e3", "1.10", "1E400", "-0", "1.0e2", "NaN"])
def test_a_json_number_that_does_not_read_back_is_rejected(tmp_path: Path, number: str) -> None:
    path = tmp_path / "job.json"
    for field, place in ((f'"env": {{"A": {number}}}', "env.A"), (f'"args": [{number}]', "args.0")):
        path.write_text(f'{{"script": "a.py", {field}}}')
        with pytest.raises(BadInputError) as caught:
            load_job(path)
        assert str(caught.value).startswith(f"{path}: {place}: {number} is read as ")
        assert str(caught.value).endswith(f'; write "{number}"')


@pytest.mark.parametrize("number", ["3", "0.25", "9007199254740993", "1e-07"])
def test_a_json_number_that_reads_back_is_text(tmp_path: Path, number: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(f'{{"script": "a.py", "args": [{number}]}}')
    assert load_job(path).args == [number]


@pytest.mark.parametrize("key", ["NO", "on", "1.10", "017", "12:30", "2026-11-25", "null"])
def test_a_key_that_yaml_changes_is_rejected(key: str) -> None:
    for field, place in (
        ("env: {KEY: a}", "env"),
        ("labels: {KEY: a}", "labels"),
        ("pod_template: {nodeSelector: {KEY: a}}", "pod_template.nodeSelector"),
        ("roles: [{name: a, image: b, env: {KEY: a}}]", "roles.0.env"),
    ):
        message = _error(f"script: a.py\n{field}".replace("KEY", key))
        assert message.startswith(f"{place}: the key ")
        assert key == "null" or message.endswith(f'; write "{key}"')


class TestNumbersAndSwitches:
    """Fields that are numbers or booleans take every form whose meaning is the same in YAML 1.1 and 1.2."""

    def test_switches_take_all_of_yamls_words(self) -> None:
        job = _load("script: a.py\nnetwork: {policy: yes}\nroles: [{name: a, image: b, before: On}]\nagent: no")
        assert (job.network.policy, job.roles[0].before, job.agent) == (True, True, False)

    def test_numbers_may_be_written_differently(self) -> None:
        job = _load(
            "script: a.py\nnum_nodes: 1_0\nprocs_per_node: +2\ndeadline: 3_600\n"
            "resources_per_node: {cpu: 1.50, memory: 17_179_869_184}"
        )
        assert (job.num_nodes, job.procs_per_node, job.deadline) == (10, 2, 3600)
        assert job.resources_per_node.limits == {"cpu": "1.5", "memory": "17179869184"}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("num_nodes: 017", "num_nodes: 017 is read as 15; write a decimal number"),
            ("num_nodes: 1:30", "num_nodes: 1:30 is read as 90; write a decimal number"),
            ("num_nodes: yes", "num_nodes: yes is not a whole number; give one such as 2"),
            ("procs_per_node: 010", "procs_per_node: 010 is read as 8; write a decimal number"),
            ("resources_per_node: {cpu: 010}", "resources_per_node.cpu: 010 is read as 8; write a decimal number"),
            ("deadline: 12:30", "deadline: '12:30' is not a duration; write it like 90s, 30m, 12h or 1d"),
            ("ttl: 0100", "ttl: 0100 is read as 64; write a decimal number"),
            ("network: {port: 0x50}", "network.port: 0x50 is read as 80; write a decimal number"),
        ],
    )
    def test_a_number_with_two_meanings_is_rejected(self, text: str, message: str) -> None:
        assert _error(f"script: a.py\n{text}") == message

    def test_the_form_of_the_kubernetes_api_keeps_octal_file_modes(self) -> None:
        job = _load("script: a.py\npod_template: {volumes: [{name: a, secret: {secretName: b, defaultMode: 0640}}]}")
        assert job.pod_template["volumes"][0]["secret"]["defaultMode"] == 0o640

    def test_exit_codes_in_the_form_of_the_kubernetes_api_are_numbers(self) -> None:
        rules = "[{action: Restart, exitCodes: {operator: In, values: [42]}}]"
        job = _load(f"script: a.py\npod_template: {{initContainers: [{{name: a, restartPolicyRules: {rules}}}]}}")
        assert job.pod_template["initContainers"][0]["restartPolicyRules"][0]["exitCodes"]["values"] == [42]

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("9" * 400, f"{'9' * 77}... is beyond 64 bits; write a smaller number, or quote it"),
            (str(1 << 63), "9223372036854775808 is beyond 64 bits; write a smaller number, or quote it"),
            (".inf", ".inf is not a number of JSON; write a number, or quote it"),
            ("22:22", "22:22 is read as 1342; write a decimal number"),
            ("!!binary aGk=", "b'hi' is neither text, a number, a list nor a mapping; write one of these"),
            ("2026-11-25", '2026-11-25 is read as a date; write "2026-11-25"'),
        ],
    )
    def test_the_form_of_the_kubernetes_api_has_only_values_of_json(self, value: str, message: str) -> None:
        assert _error(f"script: a.py\npod_template: {{spec: {{x: {value}}}}}") == f"pod_template.spec.x: {message}"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("env.A=1.10", "env.A: 1.10 is read as 1.1; write --set 'env.A=\"1.10\"'"),
        ("env.A=yes", "env.A: yes is read as true; write --set 'env.A=\"yes\"'"),
        ("image=8", "image: 8 is not text; write --set 'image=\"8\"'"),
        ("labels.a=2026-11-25", "labels.a: 2026-11-25 is read as a date; write --set 'labels.a=\"2026-11-25\"'"),
        ("args=[a, 1.10]", 'args.1: 1.10 is read as 1.1; write "1.10"'),
    ],
)
def test_set_shows_how_a_shell_passes_the_text(setting: str, message: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_job(with_field({"script": "a.py"}, *parse_setting(setting)))
    assert str(caught.value) == message


def template(path: str) -> dict[str, Any]:
    """Returns a pod template whose field `path` of a container is TEXT."""
    value: Any = "TEXT"
    for key in reversed(path.split(".")):
        value = {key: value}
    return {"pod_template": {"containers": [{"name": "node", **value}]}}


class TestCommandsInOneText:
    """The remedy for a command in one text is the list of its words, as a shell splits it."""

    @pytest.mark.parametrize(
        ("field", "place"),
        [
            ({"args": "TEXT"}, "args"),
            ({"script": None, "command": "TEXT"}, "command"),
            ({"roles": [{"name": "a", "image": "b", "args": "TEXT"}]}, "roles.0.args"),
            ({"roles": [{"name": "a", "command": "TEXT"}]}, "roles.0.command"),
            (template("command"), "pod_template.containers.0.command"),
            (template("lifecycle.preStop.exec.command"), "pod_template.containers.0.lifecycle.preStop.exec.command"),
        ],
    )  # fmt: skip
    def test_the_message_has_the_list(self, field: dict[str, Any], place: str) -> None:
        given = json.loads(json.dumps({"script": "a.py", **field}).replace("TEXT", "python 'a b.py' --lr 0.1"))
        with pytest.raises(BadInputError) as caught:
            parse_job(given)
        assert str(caught.value) == (
            f'{place}: "python \'a b.py\' --lr 0.1" is text, not a list; write ["python", "a b.py", "--lr", "0.1"]'
        )

    def test_a_quote_without_an_end_is_kept(self) -> None:
        assert _error('command: "it\'s"') == 'command: "it\'s" is text, not a list; write ["it\'s"]'


_SCALARS = st.text(st.sampled_from("0123456789.:-+_eExXoObyYnNtTrRuUfFaAsSlLz~=<Zip"), min_size=1, max_size=10)


@settings(max_examples=400, deadline=None)
@given(_SCALARS)
@example("0.")
@example("-0")
@example("1e3")
def test_any_scalar_is_the_same_text_or_an_error_whose_remedy_is_that_text(scalar: str) -> None:
    def environment(written: str) -> Any:
        return _load(f"env: {{A: {written}}}\nscript: a.py").to_dict()["env"]

    try:
        assert environment(scalar) == {"A": scalar}
    except BadInputError as error:
        message = str(error)
    else:
        return
    if "not readable as YAML" in message:
        return
    if "is null" in message:
        assert scalar.lower() in ("~", "null")
        return
    remedy = message.rpartition("; write ")[2]
    assert json.loads(remedy) == scalar
    assert environment(remedy) == {"A": scalar}
