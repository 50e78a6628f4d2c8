"""Generated environments of jobs and pod templates, and the environment that the kubelet makes of a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def many_variables(count: int = 75) -> st.SearchStrategy[dict[str, str]]:
    """Many variables in any order, each with references to some others; enough for one pod."""
    names = (*ODD_NAMES, *(f"V{n}" for n in range(count // 3)), *(f"v.{n}-x" for n in range(count // 3)))
    references = [f"$({name})" for name in (*names, *_OTHER_NAMES)]
    values = st.lists(st.sampled_from((*references, *_PIECES * 4)), max_size=4).map("".join)
    return (
        st.permutations(names)
        .flatmap(lambda order: st.fixed_dictionaries(dict.fromkeys(order, values)))
        .map(lambda found: {**found, "HOME": f"/{found['HOME']}"})  # runc replaces an empty HOME
    )


def rotated(names: Sequence[str]) -> st.SearchStrategy[list[str]]:
    """The names, from any of them on; a permutation of many names takes many more choices."""
    return st.integers(0, len(names) - 1).map(lambda first: [*names[first:], *names[:first]])


@st.composite
def changed_containers(
    draw: st.DrawFn, env: Mapping[str, str], config_map: str, *, every_variable: bool = False
) -> dict[str, Any]:
    """Variables of a `pod_template` that add, override, keep and remove variables of a job, in any order.

    Args:
        draw: draws from a strategy.
        env: the job's variables.
        config_map: the name of a ConfigMap with the key `k`.
        every_variable: whether to replace all variables of the job.
    """
    names = draw(rotated([name for name in env if name != "HOME"]))
    words = [*(f"$({name})" for name in (*names[:24], "NEW0", *_OTHER_NAMES)), *_PIECES]
    values = st.lists(st.sampled_from(words), min_size=3, max_size=3).map("".join)
    sources = st.sampled_from(
        [
            {"fieldRef": {"fieldPath": "metadata.name"}},
            {"configMapKeyRef": {"name": config_map, "key": "k"}},
        ]
    )
    rows: list[dict[str, Any]] = [
        *({"name": name, "value": draw(values)} for name in (*names[:5], "NEW0", "new.x-1")),
        *({"name": name, "valueFrom": draw(sources)} for name in (names[5], "NEW2")),
        *({"name": name, "$patch": "delete"} for name in names[6:9]),
        {"name": names[9]},
        {"name": names[10], "value": None},
    ]
    rows = draw(st.permutations(rows))
    return {"env": [{"$patch": "replace"}, *rows] if every_variable else rows}


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
