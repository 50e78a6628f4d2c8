"""`stepset render`, `stepset rbac`, and what `stepset validate` reports about clusters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import stepset
from stepset.targets.dump import to_json, to_yaml
from stepset.targets.rbac import rbac
from stepset.targets.request import TARGET_NAMES
from tests.cli.conftest import Cli

JOB = {"name": "digits", "image": "registry.example/train:1", "script": "train.py", "num_nodes": 2}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print('training')\n")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB))
    return path


class TestRender:
    def test_it_prints_what_stepset_render_returns(self, cli: Cli, job: Path) -> None:
        result = cli("render", "job.yaml")
        assert (result.code, result.err) == (0, "")
        assert result.out == to_yaml(stepset.render(job))

    def test_two_calls_print_the_same(self, cli: Cli, job: Path) -> None:
        assert cli("render", "job.yaml").out == cli("render", "job.yaml").out

    @pytest.mark.parametrize("target", TARGET_NAMES)
    def test_every_target_in_json(self, cli: Cli, job: Path, target: str) -> None:
        result = cli("render", "job.yaml", "--target", target, "-o", "json")
        assert result.out == to_json(stepset.render(job, target))
        assert json.loads(result.out)["kind"] == "List"

    def test_the_namespace_is_in_the_manifests_if_given(self, cli: Cli, job: Path) -> None:
        objects = list(yaml.safe_load_all(cli("render", "job.yaml", "--namespace", "ml").out))
        assert {each["metadata"]["namespace"] for each in objects} == {"ml"}

    def test_the_run_may_have_another_name_than_its_job(self, cli: Cli, job: Path) -> None:
        workload = list(yaml.safe_load_all(cli("render", "job.yaml", "--run-name", "digits-7").out))[-1]
        assert workload["metadata"]["name"] == "digits-7"
        assert workload["metadata"]["labels"]["stepset.dev/job"] == "digits"
        result = cli("render", "job.yaml", "--run-name", "Digits")
        assert (result.code, result.out) == (2, "")
        assert result.errors[0].startswith("stepset: job.yaml: the run's name: 'Digits' is not a DNS-1035 label; use")

    @pytest.mark.parametrize(
        ("fields", "named"),
        [
            (("--framework", "mpi"), "Secret digits-mpi-ssh-auth"),
            (("--set", "framework.elastic={min_nodes: 1, max_nodes: 2}"), "ConfigMap digits-agent"),
        ],
    )
    def test_a_note_names_an_object_with_placeholders(
        self, cli: Cli, job: Path, fields: tuple[str, ...], named: str
    ) -> None:
        result = cli("render", "job.yaml", *fields)
        assert result.code == 0
        assert result.err.startswith(f"stepset: note: {named} contains placeholders, ")

    def test_accepts_a_script_with_flags(self, cli: Cli, job: Path) -> None:
        result = cli("render", "train.py", "--image", "a:1", "--nodes", "3", "--", "--epochs", "2")
        spec = list(yaml.safe_load_all(result.out))[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]
        assert spec["completions"] == 3
        assert spec["template"]["spec"]["containers"][0]["args"] == ["--epochs", "2"]

    def test_a_job_that_a_cluster_would_reject_is_bad_input(self, cli: Cli, job: Path) -> None:
        result = cli("render", "job.yaml", "--set", "image=null", "--set", "deadline=1h", "-t", "statefulset")
        assert (result.code, result.out) == (2, "")
        assert result.errors == [
            "stepset: job.yaml: image: is missing; pods need one",
            "stepset: job.yaml: deadline: a StatefulSet has none; leave it out, or use another target",
        ]

    @pytest.mark.parametrize(("flag", "value"), [("--target", "swarm"), ("-o", "toml")])
    def test_unknown_values_are_bad_input(self, cli: Cli, job: Path, flag: str, value: str) -> None:
        result = cli("render", "job.yaml", flag, value)
        assert (result.code, result.out) == (2, "")
        assert f"{value!r} is not known; use" in result.errors[0]


class TestRbac:
    def test_it_prints_the_role_of_a_backend(self, cli: Cli) -> None:
        result = cli("rbac", "--backend", "airflow", "--namespace", "ml")
        assert (result.code, result.out) == (0, to_yaml(rbac("airflow", namespace="ml")))

    def test_the_role_is_bound_to_the_given_accounts(self, cli: Cli) -> None:
        objects = json.loads(cli("rbac", "--account", "team/trainer", "--account", "other", "-o", "json").out)["items"]
        subjects = [subject for each in objects if each["kind"] == "RoleBinding" for subject in each["subjects"]]
        assert [(s["namespace"], s["name"]) for s in subjects] == [("team", "trainer"), ("default", "other")]

    def test_a_user_may_get_the_role(self, cli: Cli) -> None:
        *_, binding = json.loads(cli("rbac", "--user", "jane@example.com", "-o", "json").out)["items"]
        assert binding["subjects"] == [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane@example.com"}
        ]

    def test_a_group_may_get_the_role(self, cli: Cli) -> None:
        *_, binding = json.loads(cli("rbac", "--group", "oidc:ml-team", "-o", "json").out)["items"]
        assert binding["subjects"] == [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "oidc:ml-team"}
        ]

    @pytest.mark.parametrize("flags", [("--user", "jane"), ("--group", "jane"), ("--account", "team/jane"), ()])
    def test_the_bindings_alone_are_those_of_the_accounts_and_nothing_that_others_need(
        self, cli: Cli, flags: tuple[str, ...]
    ) -> None:
        def printed(*words: str) -> list[dict[str, Any]]:
            found = cli("rbac", *flags, "--with", "orphan", "--mpi", "--target", "job", *words, "-o", "json")
            return json.loads(found.out)["items"]  # type: ignore[no-any-return]  # json

        subject = {"--account": {"kind": "ServiceAccount", "name": "jane", "namespace": "team"}}
        subject |= {
            f"--{kind.lower()}": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "jane"}
            for kind in ("User", "Group")
        }
        of = subject[flags[0]] if flags else {"kind": "ServiceAccount", "name": "stepset", "namespace": "default"}
        found = printed("--bindings-only")
        assert found == [each for each in printed() if each.get("subjects") == [of]]
        assert [each["roleRef"]["name"] for each in found] == ["stepset-job", "stepset-mpi", "stepset-orphan"]

    def test_rights_that_only_some_runs_need_are_roles_of_their_own(self, cli: Cli) -> None:
        objects = json.loads(cli("rbac", "--mpi", "--lost-node", "--gang", "kueue", "-o", "json").out)["items"]
        names = [each["metadata"]["name"] for each in objects if each["kind"] == "Role"]
        assert names == ["stepset-jobset", "stepset-kueue", "stepset-mpi", "stepset-lost-node"]

    def test_with_read_only_an_account_may_change_nothing(self, cli: Cli) -> None:
        result = cli("rbac", "--group", "on-call", "--read-only", "--gang", "kueue", "-o", "json")
        objects = json.loads(result.out)["items"]
        roles = {each["metadata"]["name"]: each["rules"] for each in objects if each["kind"] == "Role"}
        assert list(roles) == [*(f"stepset-read-{target}" for target in TARGET_NAMES), "stepset-kueue"]
        rules = [rule for found in roles.values() for rule in found]
        assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
        assert {"jobsets", "trainjobs", "statefulsets", "pods", "pods/log", "events"} <= {
            name for rule in rules for name in rule["resources"]
        }

    @pytest.mark.parametrize("flags", [("--mpi",), ("--lost-node",), ("--with", "orphan"), ("--with", "validate")])
    def test_read_only_excludes_rights_to_change_objects(self, cli: Cli, flags: tuple[str, ...]) -> None:
        result = cli("rbac", "--read-only", *flags)
        assert (result.code, result.out) == (2, "")
        assert result.errors == [
            f"stepset: {' '.join(flags)}: grants the right to change objects; leave out this flag, or --read-only"
        ]

    @pytest.mark.parametrize(
        "flags", [(), ("--backend", "airflow", "--target", "trainjob", "--mpi"), ("--user", "jane")]
    )
    def test_the_right_to_exec_is_a_role_of_its_own_that_is_only_granted_on_request(
        self, cli: Cli, flags: tuple[str, ...]
    ) -> None:
        def printed(*words: str) -> list[dict[str, Any]]:
            return json.loads(cli("rbac", *flags, *words, "-o", "json").out)["items"]  # type: ignore[no-any-return]  # json

        base = printed()
        assert "pods/exec" not in json.dumps(base)
        more = printed("--with", "exec")
        role, *bindings = [each for each in more if each not in base]
        assert [each for each in more if each in base] == base
        assert (role["kind"], role["metadata"]["name"]) == ("Role", "stepset-exec")
        assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]}]
        assert {each["roleRef"]["name"] for each in bindings} == {"stepset-exec"}
        subjects = [each["subjects"] for each in base if each["kind"] == "RoleBinding"]
        assert all(each["subjects"] in subjects for each in bindings)

    def test_an_unknown_right_is_bad_input(self, cli: Cli) -> None:
        result = cli("rbac", "--with", "attach")
        rights = "exec, orphan, priorities, quotas, validate"
        assert (result.code, result.errors) == (
            2,
            [f"stepset: --with: 'attach' is not a right that can be added; use one of {rights}"],
        )

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (
                ["--bindings-only", "--create-namespace"],
                "--create-namespace: --bindings-only prints RoleBindings only; leave one of them out",
            ),
            (
                ["--bindings-only", "--account", "a", "--create-service-account"],
                "--create-service-account: --bindings-only prints RoleBindings only; leave one of them out",
            ),
            (
                ["--user", "jane", "--create-service-account"],
                "--create-service-account: no service account is given; add --account NAME",
            ),
        ],
    )
    def test_objects_that_the_output_would_not_contain_are_bad_input(
        self, cli: Cli, words: list[str], message: str
    ) -> None:
        result = cli("rbac", *words)
        assert (result.code, result.errors) == (2, [f"stepset: {message}"])

    def test_an_unknown_backend_is_bad_input(self, cli: Cli) -> None:
        result = cli("rbac", "--backend", "cron")
        assert (result.code, result.errors) == (
            2,
            ["stepset: backend: 'cron' is not known; use one of airflow, kfp, cli"],
        )


class TestValidate:
    def test_a_job_with_an_image_is_checked_as_a_jobset(self, cli: Cli, job: Path) -> None:
        result = cli("validate", "job.yaml", "--set", "labels.a=b c")
        assert result.code == 2
        assert result.errors[0].startswith("stepset: job.yaml: labels.a: 'b c' is not a label value")

    def test_a_job_without_an_image_is_not_checked_for_a_cluster(self, cli: Cli, job: Path) -> None:
        assert cli("validate", "job.yaml", "--set", "image=null").code == 0

    def test_checkpoints_without_a_volume_are_noted_if_the_job_is_for_a_cluster(self, cli: Cli, job: Path) -> None:
        lost = "note: checkpoint_dir: /ckpt is not on a writable volume that outlives the pods"
        given = ("validate", "job.yaml", "--set", "checkpoint_dir=/ckpt")
        assert lost in cli(*given).out
        assert lost not in cli(*given, "--set", "image=null").out
        assert lost not in cli(*given, "--set", "storage=[{path: /ckpt, claim: c}]").out

    def test_each_target_has_its_own_rules(self, cli: Cli, job: Path) -> None:
        assert cli("validate", "job.yaml", "--set", "ttl=1h").code == 0
        result = cli("validate", "job.yaml", "--set", "ttl=1h", "--target", "statefulset")
        assert (result.code, result.errors) == (
            2,
            ["stepset: job.yaml: ttl: a StatefulSet has none; leave it out, or use another target"],
        )
