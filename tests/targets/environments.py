"""Generated environments of jobs and pod templates, and the environment that the kubelet makes of a container."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from hypothesis import strategies as st

from stepset.plan.expand import expand
from tests.targets.making import Manifest

# Names that a shell cannot pass on, sets itself, or that a script is likely to use; and names of stepset's variables.
ODD_NAMES = (
    "my.var", "my-var", "a.b-c.d", ".x", "-x", "-", "--", "_", "__", "IFS", "PWD", "OLDPWD", "OPTIND", "PPID", "RANDOM",
    "SHLVL", "UID", "LINENO", "PS4", "ENV", "BASH_ENV", "SHELLOPTS", "BASH_VERSION", "SECONDS", "attempt", "child",
    "code", "stopped", "dir", "finished", "x", "i", "n", "A", "B", "C", "HOME", "LANG", "EPOCHSECONDS",
)  # fmt: skip
_OTHER_NAMES = (
    "PET_NODE_RANK",
    "PET_NNODES",
    "STEPSET_NODE_RANK",
    "STEPSET_ATTEMPT",
    "POD_NAME",
    "POD_PORT",
    "UNSET",
    "",
)
_PIECES = (
    "$",
    "$$",
    "$(",
    ")",
    "(",
    "a b",
    "'",
    '"',
    "\\",
    "\n",
    "`id`",
    "${A}",
    "$A",
    "*",
    " ",
    "é",
    "\t",
    "=",
    "-",
    "#",
)


def texts(names: tuple[str, ...] = ODD_NAMES) -> st.SearchStrategy[str]:
    """A text with references to variables, among them ones that are defined later or never."""
    references = st.sampled_from((*names, *_OTHER_NAMES)).map(lambda name: f"$({name})")
    return st.lists(st.one_of(references, references, st.sampled_from(_PIECES)), max_size=5).map("".join)


def environments(names: tuple[str, ...] = ODD_NAMES, size: int = 10) -> st.SearchStrategy[dict[str, str]]:
    """Variables of a job in any order."""
    return st.lists(st.sampled_from(names), max_size=size, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: texts(names) for name in chosen})
    )


def many_variables(seed: int, count: int = 75) -> dict[str, str]:
    """Returns many variables in a random order, each with references to some others; enough for one pod."""
    random = Random(seed)
    names = [*ODD_NAMES, *(f"V{n}" for n in range(count // 3)), *(f"v.{n}-x" for n in range(count // 3))]
    random.shuffle(names)
    references = [f"$({name})" for name in (*names, *_OTHER_NAMES)]
    found = {name: "".join(random.choices([*references, *_PIECES * 4], k=random.randrange(5))) for name in names}
    return {**found, "HOME": f"/{found['HOME']}"}  # runc replaces an empty HOME


def changed_container(seed: int, env: Mapping[str, str], config_map: str) -> dict[str, Any]:
    """Returns variables of a `pod_template` that add, override, keep and remove variables of a job, in a random order.

    Args:
        seed: the choice.
        env: the job's variables.
        config_map: the name of a ConfigMap with the key `k`.
    """
    random = Random(f"pod_template {seed}")
    names = sorted(env.keys() - {"HOME"})
    chosen = random.sample(names, 12)
    words = [*(f"$({name})" for name in (*chosen, *random.sample(names, 12), "NEW0", *_OTHER_NAMES)), *_PIECES]
    sources = [
        {"fieldRef": {"fieldPath": "metadata.name"}},
        {"configMapKeyRef": {"name": config_map, "key": "k"}},
    ]
    rows: list[dict[str, Any]] = [
        *({"name": name, "value": "".join(random.choices(words, k=3))} for name in (*chosen[:5], "NEW0", "new.x-1")),
        *({"name": name, "valueFrom": source} for name in (chosen[5], "NEW2") for source in random.sample(sources, 1)),
        *({"name": name, "$patch": "delete"} for name in chosen[6:9]),
        {"name": chosen[9]},
        {"name": chosen[10], "value": None},
    ]
    random.shuffle(rows)
    return {"env": [{"$patch": "replace"}, *rows]} if random.random() < 0.2 else {"env": rows}


def kubelet_env(container: Manifest, fields: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a container as the kubelet sets it (kubernetes pkg/kubelet makeEnvironmentVariables).

    Args:
        fields: the values of the pod's fields by path.
        before: variables of the image, to which `$(NAME)` does not refer.
    """
    known: dict[str, str] = {}
    for row in container.get("env", []):
        known[row["name"]] = (
            fields[row["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in row else expand(row["value"], known)
        )
    return {**before, **known}


def kubelet_command(container: Manifest, env: Mapping[str, str]) -> list[str]:
    """Returns the command and arguments of a container, with references to the container's variables expanded."""
    known = {row["name"]: env[row["name"]] for row in container.get("env", [])}
    return [expand(word, known) for word in (*container.get("command", []), *container.get("args", []))]
