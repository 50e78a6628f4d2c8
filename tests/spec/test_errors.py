"""An error names the field, the value and the remedy in one line, with the names of the job file."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.spec import parse_job
from stepset.spec.options import KINDS

# Fields beside `script: train.py` -> the whole message.
ERRORS: list[tuple[dict[str, Any], str]] = [
    # unknown keys
    ({"num_node": 2}, "unknown key 'num_node'; did you mean 'num_nodes'?"),
    ({"procs": 2}, "unknown key 'procs'; did you mean 'procs_per_node'?"),
    ({"framework": {"kind": "torch", "elastc": {}}}, "framework: unknown key 'elastc'; did you mean 'elastic'?"),
    ({"network": {"prt": 1}}, "network: unknown key 'prt'; did you mean 'port'?"),
    (
        {"restart": {"x": 1}},
        "restart: unknown key 'x'; known keys: lost_node, lost_node_after, max_restarts, user_errors",
    ),
    ({"hang": {"aftr": 1}}, "hang: unknown key 'aftr'; did you mean 'after'?"),
    (
        {"storage": [{"mount_path": "/d", "claim": "c"}]},
        "storage.0: unknown key 'mount_path'; did you mean 'path'?",
    ),
    ({"storage": [{"path": "/d", "pvc": "c"}]}, "storage.0: unknown key 'pvc'; did you mean 'claim'?"),
    ({"roles": [{"nam": "m", "image": "x"}]}, "roles.0: unknown key 'nam'; did you mean 'name'?"),
    ({"env": {"A": {"vale": "1"}}}, "env.A: unknown key 'vale'; did you mean 'value'?"),
    ({"resources_per_node": {"cpus": 1}}, "resources_per_node: unknown key 'cpus'; did you mean 'cpu'?"),
    ({"framework": {"kind": "plain", "launcher": "none"}}, "framework: unknown key 'launcher'; known keys: kind"),
    *(
        ({key: 1}, f"unknown key {key!r}; did you mean {meant!r}?")
        for key, meant in {
            "tolerations": "scheduling.tolerations",
            "nodeSelector": "scheduling.node_selector",
            "node_selector": "scheduling.node_selector",
            "queue_name": "scheduling.queue_name",
            "port": "network.port",
            "max_restarts": "restart.max_restarts",
            "gpus": "resources_per_node.gpus",
            "cpu": "resources_per_node.cpu",
            "volumes": "storage",
            "launcher": "framework: {kind: torch, launcher: ...}",
        }.items()
    ),
    *(
        (
            {key: "a"},
            f"unknown key {key!r}; it is no field of a job;"
            " give it to the command, function or operator that starts the run",
        )
        for key in ("target", "namespace", "backend", "context")
    ),
    # framework
    *(
        (
            {"resources_per_node": {"memory": text}},
            f"resources_per_node.memory: {text!r} is not a Kubernetes quantity; write {right}",
        )
        for text, right in {"8GB": "8G or 8Gi", "8g": "8G or 8Gi", "8GiB": "8Gi"}.items()
    ),
    (
        {"framework": {"torch": {"launcher": "none"}}},
        "framework: 'torch' is a kind; write its options beside it: framework: {kind: torch, ...}",
    ),
    ({"framework": "pytorch"}, "framework: unknown framework 'pytorch'; did you mean 'torch'?"),
    ({"framework": "lightning"}, "framework: unknown framework 'lightning'; did you mean 'torch'?"),
    ({"framework": "Hugging_Face"}, "framework: unknown framework 'Hugging_Face'; did you mean 'torch'?"),
    (
        {"framework": {"launcher": "none"}},
        f"framework.kind: is missing; it must be one of {', '.join(KINDS)}",
    ),
    ({"framework": 3}, "framework: 3 is not a mapping; write torch, or {kind: torch}"),
    ({"framework": None}, "framework: is null; give a value or leave it out"),
    (
        {"framework": {"kind": "torch", "launcher": "srun"}},
        "framework.launcher: 'srun' is not known; use 'torchrun' or 'none'",
    ),
    (
        {"framework": {"kind": "torch", "launcher": "none", "elastic": {}}},
        "framework: elastic needs launcher 'torchrun': a script without a launcher cannot re-form the world",
    ),
    (
        {"framework": {"kind": "torch", "launcher": "none", "env_layer": "launcher"}},
        "framework: env_layer 'launcher' sets PET_*, which only launcher 'torchrun' reads; leave it out",
    ),
    (
        {"framework": {"kind": "torch", "elastic": {"min_nodes": 3, "max_nodes": 2}}},
        "framework.elastic: min_nodes 3 is more than max_nodes 2; lower it or raise max_nodes",
    ),
    (
        {"framework": {"kind": "torch", "elastic": {"min_nodes": 2, "max_nodes": 4}}},
        "num_nodes: 1 is outside framework.elastic's 2 to 4 nodes; num_nodes is the initial number",
    ),
    (
        {"framework": {"kind": "torch", "elastic": {"rdzv_conf": {"is_host": 1}}}},
        "framework.elastic.rdzv_conf: is_host is set by stepset, 1 on node 0 and 0 elsewhere; leave it out",
    ),
    (
        {"framework": {"kind": "torch", "elastic": {"rdzv_conf": {"a=b": 1}}}},
        "framework.elastic.rdzv_conf: 'a=b' is not the name of a setting; write one such as read_timeout",
    ),
    (
        {"framework": {"kind": "torch", "elastic": {"rdzv_conf": {"timeout": ""}}}},
        "framework.elastic.rdzv_conf: timeout: '' cannot be passed to torchrun; give one value, without a comma",
    ),
    (
        {"framework": {"kind": "torchtune", "recipe": "full"}},
        "framework: recipe and config belong together; give both, or only model",
    ),
    (
        {"framework": {"kind": "mpi", "ssh_auth_mount_path": "~/.ssh"}},
        "framework.ssh_auth_mount_path: '~/.ssh' is not an absolute path; start it with '/', because '~' is not"
        " expanded",
    ),
    # numbers
    ({"num_nodes": 0}, "num_nodes: 0 is too small; give 1 or more"),
    ({"num_nodes": 2.5}, "num_nodes: 2.5 is not a whole number; give one such as 2"),
    ({"num_nodes": "two"}, "num_nodes: 'two' is not a whole number; give one such as 2"),
    ({"num_nodes": True}, "num_nodes: True is not a whole number; give one such as 2"),
    ({"num_nodes": None}, "num_nodes: is null; give a value or leave it out"),
    ({"num_nodes": float("inf")}, "num_nodes: inf is not a whole number; give one such as 2"),
    ({"network": {"port": 70000}}, "network.port: 70000 is too large; give 65535 or less"),
    *(
        ({"hang": value}, f"hang: {value!r} is not known; use off, or times such as {{after: 5m, first: 30m}}")
        for value in ("on", True, None, "5m", 300, [])
    ),
    ({"hang": {"first": "soon"}}, "hang.first: 'soon' is not a duration; write it like 90s, 30m, 12h or 1d"),
    ({"hang": {"after": 0}}, "hang.after: 0 is not a positive duration; give at least 1s"),
    ({"restart": 3}, "restart: 3 is not a mapping; write {max_restarts: 3}"),
    ({"restart": {"max_restarts": -1}}, "restart.max_restarts: -1 is too small; give 0 or more"),
    ({"num_nodes": 2**31}, "num_nodes: 2147483648 is more than Kubernetes allows; give 2147483647 or less"),
    (
        {"procs_per_node": 2**31},
        "procs_per_node: 2147483648 is more than Kubernetes allows; give 2147483647 or less",
    ),
    ({"procs_per_node": 0}, "procs_per_node: 0 is not known; use auto, cpu, gpu, or a whole number of 1 or more"),
    (
        {"procs_per_node": "tpu"},
        "procs_per_node: 'tpu' is not known; use auto, cpu, gpu, or a whole number of 1 or more",
    ),
    ({"procs_per_node": True}, "procs_per_node: True is not known; use auto, cpu, gpu, or a whole number of 1 or more"),
    ({"procs_per_node": "²"}, "procs_per_node: '²' is not known; use auto, cpu, gpu, or a whole number of 1 or more"),
    # text, lists, mappings, switches
    ({"image": 3}, 'image: 3 is not text; write "3"'),
    ({"image": ""}, "image: is empty; give a value or leave it out"),
    ({"args": "--epochs 3"}, 'args: \'--epochs 3\' is text, not a list; write ["--epochs", "3"]'),
    (
        {"args": {"--lr": 3, "--amp": True}},
        'args: {\'--lr\': 3, \'--amp\': True} is not a list; write ["--lr", "3", "--amp"]',
    ),
    ({"args": [True]}, 'args.0: true is not text; write "true"'),
    ({"args": None}, "args: is null; give a value or leave it out"),
    ({"labels": {"a": 1}}, 'labels.a: 1 is not text; write "1"'),
    ({"labels": []}, "labels: [] is not a mapping; write {team: vision}"),
    (
        {"roles": {"m": {}}},
        "roles: {'m': {}} is not a list; write [{name: fetch, command: [python3, fetch.py], before: true}]",
    ),
    ({"agent": "maybe"}, "agent: 'maybe' is not known; use auto, true or false"),
    (
        {"storage": [{"path": "/a", "claim": "c", "read_only": "maybe"}]},
        "storage.0.read_only: 'maybe' is neither true nor false; write one of them",
    ),
    ({"storage": [{"path": "/a"}]}, "storage.0.claim: is missing; it must be given"),
    ({"storage": [{"path": "a", "claim": "c"}]}, "storage.0.path: 'a' is not an absolute path; start it with '/'"),
    ({"checkpoint_dir": "ckpt"}, "checkpoint_dir: 'ckpt' is not an absolute path; start it with '/'"),
    (
        {"checkpoint_dir": "~/ckpt"},
        "checkpoint_dir: '~/ckpt' is not an absolute path; start it with '/', because '~' is not expanded",
    ),
    (
        {"scheduling": {"gang": "yarn"}},
        "scheduling.gang: 'yarn' is not known; use 'none', 'kueue', 'coscheduling' or 'volcano'",
    ),
    # names
    (
        {"name": "My Job"},
        "name: 'My Job' is not a DNS-1035 label; use lower-case letters, digits and '-', starting with a letter"
        " (for example 'my-job')",
    ),
    (
        {"name": "a" * 49},
        f"name: '{'a' * 49}' has 49 characters; with these pod groups at most 48 fit into Kubernetes' 63-character pod"
        " names; shorten it",
    ),
    (
        {"network": {"subdomain": "1a"}},
        "network.subdomain: '1a' is not a DNS-1035 label; use lower-case letters, digits and '-', starting with a"
        " letter (for example 'job-1a')",
    ),
    (
        {"roles": [{"name": "node", "image": "x"}]},
        "roles: the name 'node' is taken; give each role a name of its own",
    ),
    (
        {"roles": [{"name": "m", "image": "x"}, {"name": "m", "image": "y"}]},
        "roles: the name 'm' is taken; give each role a name of its own",
    ),
    ({"roles": [{"name": "m"}]}, "roles.0: role 'm' has neither image nor command; give one of them"),
    (
        {"roles": [{"name": "m" * 60, "image": "x"}]},
        f"roles: '{'m' * 60}' has 60 characters, which leaves no room for the job's name in pod names of"
        " 63 characters; shorten it",
    ),
    # environment
    ({"env": {"A B": "1"}}, "env: 'A B' is not a variable name; use letters, digits, '_', '-' and '.'"),
    ({"env": {"A\n": "1"}}, "env: 'A\\n' is not a variable name; use letters, digits, '_', '-' and '.'"),
    (
        {"env": {"1A": "1"}},
        "env: '1A' is not a variable name; use letters, digits, '_', '-' and '.', and do not begin with a digit",
    ),
    (
        {"env": {"A": None}},
        'env.A: is null; write "" for an empty text',
    ),
    ({"env": {"A": {"secret": "s"}}}, "env.A.key: is missing; it must be given"),
    ({"env": {"A": {"secret": "s", "key": ""}}}, "env.A.key: is empty; give a value or leave it out"),
    ({"env": {"A": {"override": True}}}, "env.A.value: is missing; it must be given"),
    ({"env": {"PET_STANDALONE": ""}}, "env: PET_STANDALONE is empty, which torchrun takes for a value; leave it out"),
    (
        {"env": {"A": {"valueFrom": {"secretKeyRef": {}}}}},
        "env.A: valueFrom is not known here; write {secret: NAME, key: KEY}",
    ),
    (
        {"env": {"A": {"valueFrom": {}}}},
        "env.A: valueFrom is not known here; write {secret: NAME, key: KEY} or {field: PATH}",
    ),
    (
        {"env": {"A": {"valueform": {"fieldRef": {}}}}},
        "env.A: valueform is not known here; write {field: PATH}",
    ),
    (
        {"env": {"A": {"secret_key_ref": {}}}},
        "env.A: secret_key_ref is not known here; write {secret: NAME, key: KEY}",
    ),
    ({"env": {"A": {"fieldref": {}}}}, "env.A: fieldref is not known here; write {field: PATH}"),
    (
        {"env": {"A": {"configMapKeyRef": {}}}},
        "env.A: configMapKeyRef is not known here; write the variable in pod_template, as {containers:"
        " [{name: node, env: [{name: NAME, valueFrom: {configMapKeyRef: {name: NAME, key: KEY}}}]}]}",
    ),
    ({"env": {"A": {"secrt": "a", "key": "b"}}}, "env.A: unknown key 'secrt'; did you mean 'secret'?"),
    ({"env": {"A": {"key": "b"}}}, "env.A.secret: is missing; it must be given"),
    # quantities and durations
    ({"resources_per_node": {"memory": 16}}, "resources_per_node.memory: 16 is 16 bytes; write 16Gi or 16Mi"),
    ({"resources_per_node": {"memory": "16m"}}, "resources_per_node.memory: 16m is 0.016 bytes; write 16Gi or 16Mi"),
    (
        {"resources_per_node": {"limits": {"memory": "1k"}}},
        "resources_per_node.limits.memory: 1k is 1000 bytes; write 1Gi or 1Mi",
    ),
    (
        {"roles": [{"name": "a", "image": "x", "resources": {"ephemeral-storage": 1}}]},
        "roles.0.resources.ephemeral-storage: 1 is 1 byte; write 1Gi or 1Mi",
    ),
    ({"resources_per_node": {"shm": 8}}, "resources_per_node.shm: 8 is 8 bytes; write 8Gi or 8Mi"),
    (
        {"resources_per_node": {"memory": "2Gi", "shm": "4Gi"}},
        "resources_per_node.shm: 4Gi is more than the memory 2Gi, which includes /dev/shm; lower it",
    ),
    (
        {
            "resources_per_node": {"shm": "4Gi"},
            "pod_template": {"containers": [{"name": "node", "resources": {"limits": {"memory": "2Gi"}}}]},
        },
        "resources_per_node.shm: 4Gi is more than the memory 2Gi, which includes /dev/shm; lower it",
    ),
    (
        {"pod_template": {"spec": {"containers": [{"name": "node", "resources": {"limits": {"gpus": 2}}}]}}},
        "pod_template.spec.containers.node.resources.limits.gpus: is a short name that only stepset's own fields accept"
        "; write nvidia.com/gpu",
    ),
    (
        {"resources_per_node": {"memory": "16GB"}},
        "resources_per_node.memory: '16GB' is not a Kubernetes quantity; write 16G or 16Gi",
    ),
    (
        {"resources_per_node": {"limits": {"cpu": "4 cores"}}},
        "resources_per_node.limits.cpu: '4 cores' is not a Kubernetes quantity; write it like 4, 500m or 16Gi",
    ),
    (
        {"resources_per_node": {"limits": {"gpu": 1}}},
        "resources_per_node.limits: unknown key 'gpu'; did you mean 'gpus'?",
    ),
    (
        {"resources_per_node": {"requests": {"cpu": 1}, "gpus": 1}},
        "resources_per_node: unknown key 'gpus'; known keys: limits, requests, shm",
    ),
    (
        {"resources_per_node": {"gpus": 1, "nvidia.com/gpu": 2}},
        "resources_per_node.nvidia.com/gpu: sets nvidia.com/gpu, which another key sets, too; give one of them",
    ),
    ({"resources_per_node": {"cpu": -1}}, "resources_per_node.cpu: -1 is negative; give 0 or more"),
    (
        {"resources_per_node": {"cpu": "1e999999999"}},
        "resources_per_node.cpu: 1e999999999 is too large for a quantity; give 9223372036854775807 or less",
    ),
    (
        {"resources_per_node": {"shm": True}},
        "resources_per_node.shm: True is not a quantity; write it like 4, 500m or 16Gi",
    ),
    ({"resources_per_node": 4}, "resources_per_node: 4 is not a mapping; write {cpu: 4, memory: 16Gi, gpus: 1}"),
    ({"deadline": "1h30"}, "deadline: '1h30' is not a duration; write it like 90s, 30m, 12h or 1d"),
    ({"deadline": 0}, "deadline: 0 is not a positive duration; give at least 1s"),
    ({"ttl": "0s"}, "ttl: 0s is not a positive duration; give at least 1s"),
    ({"ttl": 1.5}, "ttl: '1.5' is not a duration; write it like 90s, 30m, 12h or 1d"),
    (
        {"network": {"peer_timeout": "²"}},
        "network.peer_timeout: '²' is not a duration; write it like 90s, 30m, 12h or 1d",
    ),
    # entry points
    (
        {"module": "train"},
        "exactly one of script, module, command, function is required; script and module are given",
    ),
    ({"command": []}, "command: is empty; give a value or leave it out"),
    (
        {"script": None},
        "exactly one of script, module, command, function is required; none is given",
    ),
    (
        {"script": None, "function": "x = 1\ndef f(:\n"},
        "function: line 2: invalid syntax: 'def f(:'; correct the program",
    ),
    (
        {"script": None, "function": "code/train.py"},
        "function: 'code/train.py' is the path of a file; give it as script instead",
    ),
    (
        {"script": None, "function": "digits.train"},
        "function: 'digits.train' is a name, not the source of a program; to run a module, give its name as module; to"
        " call a function, write a program that imports and calls it",
    ),
    (
        {"script": None, "function": "digits.train:main"},
        "function: 'digits.train:main' is a name, not the source of a program; to run a module, give its name as"
        " module; to call a function, write a program that imports and calls it",
    ),
    ({"script": None, "module": "train.py"}, "module: 'train.py' is the path of a file; give it as script instead"),
    (
        {"script": None, "function": "return 1"},
        "function: line 1: 'return' outside function: 'return 1'; correct the program",
    ),
    # the pod template
    ({"pod_template": []}, "pod_template: [] is not a mapping; write {spec: {...}}"),
    (
        {"pod_template": {"spec": {"containers": [{"name": "node", "resources": {"limits": {"cpu": "x"}}}]}}},
        "pod_template.spec.containers.node.resources.limits.cpu: 'x' is not a Kubernetes quantity; write it like 4,"
        " 500m or 16Gi",
    ),
    (
        {"pod_template": {"spec": {"containers": [{"name": "node", "resources": [1]}]}}},
        "pod_template.spec.containers.node.resources: [1] is not a mapping; write {limits: {...}, requests: {...}}",
    ),
]


@pytest.mark.parametrize(("given", "message"), ERRORS, ids=[message.split("; ")[0][:60] for _, message in ERRORS])
def test_the_message_is(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_job({"script": "train.py", **given})
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", ["PyTorchJob", "MPIJob", "TrainJob", "JobSet", "RayJob"])
def test_the_error_about_an_object_of_kubernetes_names_the_guide(kind: str) -> None:
    manifest = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "digits"}, "spec": {}}
    for data in (manifest, {"kind": kind, "spec": {}, "image": "registry.example/train:1"}):
        with pytest.raises(BadInputError) as raised:
            parse_job(data, where="digits.yaml")
        assert str(raised.value) == (
            f"digits.yaml: kind: {kind!r} is an object of Kubernetes, not a job of stepset; write a job with the fields"
            " that docs/guides/pytorchjob.md lists for those of a PyTorchJob"
        )


def test_every_unknown_key_is_named_at_once() -> None:
    with pytest.raises(BadInputError) as caught:
        parse_job({"scrpt": "a.py", "num_node": 2})
    assert len(caught.value.problems) == 2


def test_unknown_keys_and_problems_of_known_keys_are_reported_together() -> None:
    given = {"num_nodes": 0, "restart": {"max_restarts": "x"}, "framework": {"kind": "torch", "elastc": {}}}
    with pytest.raises(BadInputError) as caught:
        parse_job({"scrpt": "a.py", "xxxx": 1, "yyyy": 2, "env": {"A": {"secret": 1}}, "image": 1, **given})
    unknown, others, *problems = caught.value.problems
    assert unknown == "unknown key 'scrpt'; did you mean 'script'?"
    assert others.startswith("unknown keys 'xxxx', 'yyyy'; known keys: agent, annotations, args, ")
    assert sorted(problems) == [
        "env.A.key: is missing; it must be given",
        'env.A.secret: 1 is not text; write "1"',
        "framework: unknown key 'elastc'; did you mean 'elastic'?",
        'image: 1 is not text; write "1"',
        "num_nodes: 0 is too small; give 1 or more",
        "restart.max_restarts: 'x' is not a whole number; give one such as 2",
    ]


def test_a_problem_in_a_value_given_once_is_reported_once() -> None:
    """The short form of resources is both requests and limits, which the user did not write."""
    with pytest.raises(BadInputError) as caught:
        parse_job({"script": "a.py", "resources_per_node": {"cpu": "x", "memory": "y"}})
    assert [line.split(":")[0] for line in caught.value.problems] == [
        "resources_per_node.cpu",
        "resources_per_node.memory",
    ]


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(BadInputError) as caught:
        parse_job({"script": "a.py", "num_nodes": "9" * 1000 + "x"})
    assert len(str(caught.value)) < 160 and "..." in str(caught.value)


def test_an_invalid_secret_key_is_not_repeated_in_the_message() -> None:
    """A value given in the place of a key's name does not appear in the message."""
    with pytest.raises(BadInputError) as caught:
        parse_job({"script": "a.py", "env": {"TOKEN": {"secret": "hub", "key": "token", "value": "hunter2"}}})
    assert "hunter2" not in str(caught.value)
