"""Jobs with unusual values in one to three fields, valid and invalid ones; stepset must accept only the valid ones.

The values are at the edge of what Kubernetes accepts, on either side.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from tests.strategies import JobFile, job_files
from tests.targets.cases import OWN_FIELDS

_LONG = "a" * 63
_TOO_LARGE = 2**31
_NAMES = ["a.b", "A", "a_b", "-a", "a-", _LONG, _LONG + "a", "a" * 253, "a" * 254, "a..b", "0", "a\n"]
_KEYS = [
    "a/b",
    "/b",
    "a/",
    "A/b",
    "example.com/a",
    "a" * 64,
    "a b",
    "app.kubernetes.io/name",
    "a/b/c",
    "_a",
    "é",
    "a\n",
]
_DIRECTORIES = [
    "/a/../b", "/a//b", "/a/", "/etc/mpi", "/root/.ssh", "/etc/ssh/ssh_config", "/etc/ssh", "/a:b", "/a b", "/",
    "/stepset/code", "/stepset", "/dev/shm", "/dev/shm/x", "/dev", "/a/./b", "/etc/mlx", "/stepset/run/x",
]  # fmt: skip
_AMOUNTS = ["0", "1n", "0.0001", "1e-9", "1.5", "100m", "1Ei", "2Mi", "3M", "1e3", "-1", 0, 1, "9e18", "+2"]
_RESOURCES = [
    "foo", "a/b/c", "requests.cpu", "kubernetes.io/x", "requests.example.com/x", "example.com/x", "pods", "storage",
    "hugepages-2Mi", "hugepages-1Gi", "hugepages-x", "ephemeral-storage", "nvidia.com/gpu", "cpu", "memory",
    "example.com/" + _LONG, "example.com/" + _LONG + "a", "attachable-volumes-x", "A.com/x",
]  # fmt: skip
_WHOLE = [0, 1, 1000, 100_000, _TOO_LARGE - 1, _TOO_LARGE, 10**12]


def _one(values: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def _amounts() -> st.SearchStrategy[JobFile]:
    return st.dictionaries(_one(_RESOURCES), _one(_AMOUNTS), min_size=1, max_size=2)


def _resources() -> st.SearchStrategy[Any]:
    return st.one_of(
        _amounts(),
        _amounts().map(lambda a: {"requests": a, "limits": a}),
        st.builds(lambda a, b: {"requests": a, "limits": b}, _amounts(), _amounts()),
        _amounts().map(lambda a: {"limits": a}),
        _one(_AMOUNTS).map(lambda a: {"shm": a}),
    )


_VARIABLES = st.dictionaries(
    _one(["1A", "a-b", "a b", "A=B", "é", "a.b", "-x", "A", "a\x01", "A:B", "x" * 300]),
    st.one_of(
        _one(["", "a\nb", "$(X)", "$$(X)", "\x01", "é", "x" * 2000]),
        st.builds(lambda s, k: {"secret": s, "key": k}, _one(_NAMES), _one(["a", "..", ".", "..a", "a/b", "a" * 254])),
        _one(
            [
                "metadata.labels['a']", "metadata.labels['a b']", "metadata.labels", "metadata.annotations['']",
                "metadata.annotations['A/b']", "metadata.labels['A/b']", "spec.nodeName", "spec.serviceAccountName",
                "status.podIPs", "status.hostIPs", "metadata.uid", "status.phase", "spec.restartPolicy",
            ]
        ).map(lambda f: {"field": f}),
    ),
    min_size=1,
    max_size=2,
)  # fmt: skip

_PLACES: dict[str, st.SearchStrategy[Any]] = {
    "name": _one(["a" * n for n in (33, 40, 44, 45, 46, 47, 48, 49, 52, 63)]),
    "num_nodes": _one([1, 10, 11, 100, 101, 1000, 1001, 10_000, 100_000, 100_001, _TOO_LARGE]),
    "procs_per_node": _one([1, 1000, _TOO_LARGE]),
    "image": _one([" x", "x ", "x y", "", "A/B:c", "a@b", "x" * 300, "a\nb"]),
    "args": st.lists(_one(["", "\x01", "é", "a\nb", "$(A)", "x" * 4000]), min_size=1, max_size=2),
    "env": _VARIABLES,
    "resources_per_node": _resources(),
    "storage": st.lists(
        st.fixed_dictionaries(
            {"path": _one(_DIRECTORIES), "claim": st.one_of(st.just("a"), _one(_NAMES))},
            optional={"sub_path": _one(["a/../b", "", "..a", "a/", "./a", "/a", "..", "a b", "a:b"])},
        ),
        min_size=1,
        max_size=2,
    ),
    "checkpoint_dir": _one(_DIRECTORIES),
    "roles": st.lists(
        st.fixed_dictionaries(
            {"name": _one(["a", "b", "a" * 20, "a" * 40, "a" * 63]), "image": _one(["x", " x", "x y"])},
            optional={
                "replicas": _one(_WHOLE),
                "before": st.booleans(),
                "env": _VARIABLES,
                "resources": _resources(),
            },
        ),
        min_size=1,
        max_size=2,
    ),
    "many roles": st.integers(5, 8).map(
        lambda n: [{"name": f"r{k}", "image": "x", "before": True} for k in range(n)]
    ),
    "restart.max_restarts": _one(_WHOLE),
    "deadline": _one([0, 1, _TOO_LARGE, 10**10, 10**19]),
    "ttl": _one([0, 1, _TOO_LARGE - 1, _TOO_LARGE, 10**12]),
    "scheduling.queue_name": _one(_NAMES),
    "scheduling.priority_class": _one(_NAMES),
    "scheduling.node_selector": st.dictionaries(_one(_KEYS), _one(["", "a b", _LONG, _LONG + "a", "-a"]), min_size=1),
    "scheduling.tolerations": st.lists(
        _one(
            [
                {}, {"operator": "Exists"}, {"key": "a", "operator": "Nope"}, {"key": "a", "value": "b"},
                {"key": "a b"}, {"key": "a", "operator": "Exists", "value": "b"}, {"tolerationSeconds": 3},
                {"key": "a", "effect": "NoExecute", "tolerationSeconds": 3, "operator": "Exists"}, {"effect": "x"},
                {"key": "a", "nope": 1}, {"key": 1}, {"key": "a", "operator": "Gt", "value": "01"},
            ]
        ),
        min_size=1,
        max_size=2,
    ),
    "scheduling.affinity": _one(
        [
            {}, {"nope": {}}, {"nodeAffinity": {}}, {"podAntiAffinity": {"x": 1}}, {"nodeAffinity": []},
            {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
        ]
    ),
    **{path: field.odd for path, field in OWN_FIELDS.items()},
    "network.subdomain": _one(["a" * 63, "a" * 64, "0a", "a-", "a.b", "a\n"]),
    "network.cluster_domain": _one(["k8s.example.", "A b", "K8S", "a..b", "-a", "a" * 254]),
    "network.peer_timeout": _one([0, 1, _TOO_LARGE - 1, _TOO_LARGE, 10**12]),
    "network.port": _one([1, 22, 2222, 65535]),
    "service_account": _one(_NAMES),
    "labels": st.dictionaries(_one(_KEYS), _one(["", "a b", _LONG, _LONG + "a", "é", "a\n"]), min_size=1, max_size=2),
    "annotations": st.dictionaries(_one(_KEYS), _one(["", "a\nb", "x" * 1000, "\x01"]), min_size=1, max_size=2),
    "framework": st.one_of(
        st.builds(
            lambda path, i: {"kind": "mpi", "implementation": i, "ssh_auth_mount_path": path},
            _one(_DIRECTORIES),
            _one(["openmpi", "mpich"]),
        ),
        _one(
            [
                {"kind": "mpi", "ssh_port": 29500},
                {"kind": "mpi", "run_launcher_as_node": True},
                {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": _TOO_LARGE}},
                {"kind": "torch", "elastic": {"max_restarts": _TOO_LARGE}},
            ]
        ),
    ),
}  # fmt: skip


@st.composite
def odd_job_files(draw: st.DrawFn) -> JobFile:
    """A job file that is valid, except possibly in one to three fields."""
    job: JobFile = copy.deepcopy(draw(job_files()))
    for place in draw(st.lists(_one(sorted(_PLACES)), min_size=1, max_size=3, unique=True)):
        value = draw(_PLACES[place])
        *above, field = place.replace("many ", "").split(".")
        part = job
        for name in above:
            part = part.setdefault(name, {})
        part[field] = value
    return job
