"""Hypothesis strategies for valid job files, with all fields, all frameworks and all forms of values.

`job_files` draws mappings such as a YAML file contains; `jobs` draws loaded jobs.

The functions are cached because Hypothesis takes longer to create a strategy than to draw from it. Drawn job files may
share parts: a test must deep-copy a job file before it changes it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from stepset.spec import TrainingJob, parse_job
from stepset.spec.options import KINDS, MODELS
from tests.frameworks.cases import CASES
from tests.targets.cases import own_fields

JobFile = dict[str, Any]

# Short lists of values: these tests vary the combinations of fields rather than their values.
LABELS = st.sampled_from(["a", "b1", "team-a", "x--y", "digits", "z9z9z9z9z9"])
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
PATHS = st.sampled_from(["train.py", "src/train.py", "a/b/c_d.py", "./Train.py", "3d.py"])
ABSOLUTE = st.sampled_from(["/data", "/ckpt/digits", "/a/b/c"])
VARIABLES = st.sampled_from(["LR", "HF_TOKEN", "my.var", "_x", "NCCL_DEBUG", "PET_RUN_PATH"])
QUANTITIES = st.one_of(
    st.integers(0, 64), st.sampled_from(["100m", "1500m", "0.7", "2.5", "4", "1e3", "16Gi", "512Mi", "10G", ".5"])
)
BYTES = st.sampled_from(["512Mi", "16Gi", "10G", "1e9", "1.5Gi", "0.5Ti", 2**30, 17_179_869_184.0])
SHM = st.sampled_from(["1Mi", "512Mi", "1e7", 2**20, "2000k", "0.5Gi"])  # at most as much as the smallest of BYTES
FRAMEWORK_KINDS = st.sampled_from(KINDS)
NUMBERS_OF_NODES = st.integers(1, 12)
DURATIONS = st.sampled_from([1, 90, 3600, "90s", "30m", "12h", "1d12h", "1d1h1m1s", "45"])
ACCELERATORS = [
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "amd.com/gpu",
    "nvidia.com/mig-1g.5gb",
    "google.com/tpu",
    "huawei.com/Ascend910",
    "volcano.sh/vgpu-memory",
]


def _values(section: str) -> dict[str, st.SearchStrategy[Any]]:
    """The fields of a section that only some targets have."""
    return {name: field.values for name, field in own_fields(section).items()}


@cache
def env_values() -> st.SearchStrategy[Any]:
    """The value of a variable in any form."""
    return st.one_of(
        WORDS,
        st.booleans(),
        st.integers(-5, 10**6),
        st.floats(0, 1, allow_nan=False),
        st.just("$(STEPSET_NODE_RANK)"),
        st.fixed_dictionaries({"value": st.one_of(WORDS, st.integers())}, optional={"override": st.booleans()}),
        st.fixed_dictionaries({"secret": LABELS, "key": LABELS}, optional={"override": st.booleans()}),
        st.fixed_dictionaries({"field": st.sampled_from(["status.hostIP", "metadata.name"])}),
    )


@cache
def envs(reserved: tuple[str, ...] = ()) -> st.SearchStrategy[JobFile]:
    """Variables of a job, with at most one of the `reserved` ones, which then has `override`."""
    own = st.dictionaries(VARIABLES, env_values(), max_size=3)
    if not reserved:
        return own
    taken = st.fixed_dictionaries({"value": st.just("7"), "override": st.just(True)})
    return st.builds(lambda a, b: {**a, **b}, own, st.dictionaries(st.sampled_from(reserved), taken, max_size=1))


@cache
def resources() -> st.SearchStrategy[JobFile]:
    """Resources in the short form, or with separate requests and limits."""
    short = st.fixed_dictionaries(
        {}, optional={"cpu": QUANTITIES, "memory": BYTES, "shm": SHM, "gpus": st.integers(0, 8)}
    )
    other = st.dictionaries(st.sampled_from(ACCELERATORS), st.integers(0, 8), max_size=2)
    amounts = st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("memory", "ephemeral-storage"), BYTES),
            **dict.fromkeys(("cpu", "hugepages-2Mi", "gpus", "vendor.example/nic"), QUANTITIES),
        },
    )
    separate = st.fixed_dictionaries({"requests": amounts}, optional={"limits": amounts, "shm": SHM})
    return st.one_of(
        short, st.builds(lambda a, b: {**{k: v for k, v in a.items() if k != "gpus"}, **b}, short, other), separate
    )


_PLACEMENT: dict[str, st.SearchStrategy[Any]] = {
    "node_selector": st.dictionaries(LABELS, LABELS, max_size=2),
    "tolerations": st.lists(st.just({"key": "gpu", "operator": "Exists"}), max_size=1),
    "affinity": st.just({"podAffinity": {}}),
}


@cache
def roles() -> st.SearchStrategy[list[JobFile]]:
    """Up to three roles with different names."""
    role = st.fixed_dictionaries(
        {"name": LABELS.map(lambda name: f"r{name}"), "image": st.just("example/role:1")},
        optional={
            "before": st.booleans(),
            "replicas": st.integers(1, 5),
            "command": st.lists(st.one_of(WORDS, st.integers()), min_size=1, max_size=3),
            "args": st.lists(WORDS, max_size=2),
            "env": envs(),
            "resources": resources(),
            "scheduling": st.fixed_dictionaries({}, optional=_PLACEMENT),
        },
    )
    return st.lists(role, max_size=3, unique_by=lambda r: r["name"]).flatmap(_in_order)


def _in_order(roles: list[JobFile]) -> st.SearchStrategy[list[JobFile]]:
    """Lets the last of several roles wait for some of the earlier ones that complete."""
    earlier = [role["name"] for role in roles[:-1] if role.get("before")]
    if not earlier:
        return st.just(roles)
    return st.lists(st.sampled_from(earlier), unique=True).map(
        lambda names: [*roles[:-1], {**roles[-1], "after": names}]
    )


@cache
@st.composite
def frameworks(draw: st.DrawFn, num_nodes: int) -> Any:
    """A framework: its kind, or a mapping with a valid combination of options."""
    kind = draw(FRAMEWORK_KINDS)
    options = draw(CASES[kind].options(num_nodes))
    as_mapping = bool(options) or draw(st.booleans())
    return {"kind": kind, **options} if as_mapping else kind


@cache
def _entry(kind: str) -> st.SearchStrategy[JobFile]:
    script = st.builds(lambda s: {"script": s}, PATHS)
    module = st.builds(lambda s: {"module": s}, st.sampled_from(["train", "pkg.train"]))
    function = st.just({"function": "print('trained')\n"})
    command = st.builds(
        lambda head, rest: {"command": [*head.split(), *rest]},
        st.sampled_from(["python launch.py", "/usr/bin/python3 -m pkg.launch", "torchrun", "mpirun", "./train"]),
        st.lists(st.one_of(WORDS, st.integers()), max_size=3),
    )
    if not MODELS[kind].needs_program:
        return st.one_of(st.just({}), script, command)
    return st.one_of(script, script, module, function, command)


_POD_TEMPLATES: list[JobFile] = [
    {"spec": {"nodeName": "a", "containers": [{"name": "node", "resources": {"limits": {"memory": "64Gi"}}}]}},
    {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "sidecar", "image": "x"}]}},
    {
        "containers": [
            {"name": "node", "resources": {"limits": {"nvidia.com/gpu": 4}}, "env": [{"name": "A", "value": "1"}]}
        ]
    },
]


@cache
def _fields(kind: str) -> st.SearchStrategy[JobFile]:
    """Any of the fields that a job with this kind of framework may have."""
    optional: dict[str, st.SearchStrategy[Any]] = {
        "name": LABELS,
        "procs_per_node": st.one_of(st.sampled_from(["auto", "auto", "cpu", "gpu"]), st.integers(1, 8), st.just("2")),
        "image": st.just("registry.example/train:1"),
        "code": st.sampled_from(["src", ".", "../lib"]),
        "args": st.lists(st.one_of(WORDS, st.integers(), st.floats(0, 1)), max_size=4),
        "requirements": st.lists(st.sampled_from(["einops", "rich>=13,<15", "a[b]; python_version < '4'"]), max_size=2),
        "env": envs(CASES[kind].reserved),
        "resources_per_node": resources(),
        "storage": st.lists(
            st.fixed_dictionaries(
                {"path": ABSOLUTE, "claim": LABELS}, optional={"sub_path": LABELS, "read_only": st.booleans()}
            ),
            max_size=2,
        ),
        "checkpoint_dir": ABSOLUTE,
        "roles": roles(),
        "restart": st.fixed_dictionaries(
            {},
            optional={
                "max_restarts": st.integers(0, 9),
                "user_errors": st.sampled_from(["restart", "fail"]),
                "lost_node": st.sampled_from(["report", "release"]),
                "lost_node_after": DURATIONS,
                **_values("restart"),
            },
        ),
        "hang": st.one_of(
            st.sampled_from(["off", False]),
            st.fixed_dictionaries({}, optional={"after": DURATIONS, "first": DURATIONS}),
        ),
        "deadline": DURATIONS,
        "termination_grace_period": DURATIONS,
        "ttl": DURATIONS,
        "scheduling": st.fixed_dictionaries(
            {},
            optional={
                "queue_name": LABELS,
                "priority_class": LABELS,
                "gang": st.sampled_from(["none", "kueue", "coscheduling", "volcano"]),
                "min_member": st.integers(1, 9),
                **_PLACEMENT,
                "topology": st.fixed_dictionaries({}, optional=_values("scheduling.topology")),
                **_values("scheduling"),
            },
        ),
        "network": st.fixed_dictionaries(
            {},
            optional={
                "port": st.integers(1, 65535),
                "subdomain": LABELS,
                "cluster_domain": st.just("k8s.example"),
                "peer_timeout": DURATIONS,
                "policy": st.booleans(),
                **_values("network"),
            },
        ),
        "service_account": LABELS,
        "security": st.just("restricted"),
        "labels": st.dictionaries(LABELS, LABELS, max_size=2),
        "annotations": st.dictionaries(LABELS, WORDS, max_size=2),
        "pod_template": st.sampled_from(_POD_TEMPLATES),
        "agent": st.sampled_from(["auto", True, "true"]),
    }
    return st.fixed_dictionaries({}, optional=optional)


@st.composite
def job_files(draw: st.DrawFn) -> JobFile:
    """A valid job file, as a mapping."""
    num_nodes = draw(NUMBERS_OF_NODES)
    framework = draw(frameworks(num_nodes))
    kind = framework if isinstance(framework, str) else framework["kind"]
    chosen = draw(_fields(kind))
    return {"framework": framework, "num_nodes": num_nodes, **draw(_entry(kind)), **chosen}


def jobs() -> st.SearchStrategy[TrainingJob]:
    """A valid job, loaded."""
    return job_files().map(parse_job)
