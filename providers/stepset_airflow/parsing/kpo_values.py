"""Converts arguments of KubernetesPodOperator and KubernetesJobOperator to arguments of DistributedTrainOperator.

The values may be models of the Kubernetes client. If a value cannot be converted, the error message contains the
example in kpo_parameters.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from stepset_airflow.parsing.kpo_parameters import KPO_PARAMETERS

if TYPE_CHECKING:
    from stepset.plan.launchers import Launcher

Arguments = dict[str, Any]
"""Arguments of DistributedTrainOperator."""

_PROGRAM = ("script", "module", "command", "function", "job")
_SHARED_MEMORY = "/dev/shm"
TORCHRUN = "torchrun"
_PYTHON = re.compile(r"(.*/)?python[0-9.]*")
_NUMBER = re.compile(r"[0-9]{1,9}")
"""A number of nodes or processes. A longer number is invalid for every launcher."""


class _NotConvertibleError(Exception):
    """A value has no equivalent, or this module does not support its form."""


_NOT_CONVERTIBLE = (_NotConvertibleError, AttributeError, KeyError, TypeError, ValueError)
"""The exceptions of a conversion that mean that the value cannot be converted."""


def equivalents_of(foreign: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Arguments]:
    """Returns a mapping from the names of arguments to equivalent arguments of DistributedTrainOperator.

    If an argument cannot be converted, the mapping does not contain its name.

    Args:
        foreign: arguments of KubernetesPodOperator or KubernetesJobOperator that are not parameters of
            DistributedTrainOperator.
        own: the other arguments of the task.
    """
    found = {}
    program: dict[str, Arguments] = {}
    with suppress(*_NOT_CONVERTIBLE):
        program = _program(foreign, own)
    for name, value in foreign.items():
        try:
            equivalent = program[name] if name in program else _equivalent(name, value, foreign, own)
        except _NOT_CONVERTIBLE:
            continue
        if equivalent is not None:
            found[name] = equivalent
    return found


def merged(first: Any, second: Any) -> Any:
    """Combines two values of the same parameter.

    Two mappings are merged. Two lists are concatenated, and entries with the same `name` are merged. Of two numbers,
    the larger number is used. In all other cases, the second value is used unless the second value is None.

    >>> merged({"containers": [{"name": "node", "a": 1}]}, {"containers": [{"name": "node", "b": 2}]})
    {'containers': [{'name': 'node', 'a': 1, 'b': 2}]}
    """
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return {**first, **{key: merged(first[key], value) if key in first else value for key, value in second.items()}}
    if first == second or second is None:
        return first
    if isinstance(first, list) and isinstance(second, list):
        return _joined(first, second)
    return max(first, second) if isinstance(first, (int, float)) and isinstance(second, (int, float)) else second


def _joined(first: list[Any], second: list[Any]) -> list[Any]:
    joined = list(first)
    for entry in second:
        name = entry.get("name") if isinstance(entry, Mapping) else None
        same = [n for n, each in enumerate(joined) if name and isinstance(each, Mapping) and each.get("name") == name]
        if same:
            joined[same[0]] = merged(joined[same[0]], entry)
        elif entry not in joined:
            joined.append(entry)
    return joined


def _equivalent(name: str, value: Any, foreign: Mapping[str, Any], own: Mapping[str, Any]) -> Arguments | None:
    """Returns the equivalent of one argument, or None if the argument cannot be converted.

    Returns an empty mapping if the argument has no effect.
    """
    if name == "secrets" and value:
        return _secrets(value)
    if (value is None or _plain(value) in ({}, [])) and KPO_PARAMETERS[name].example:
        return {}
    if name in ("volumes", "volume_mounts"):
        return _volumes(_plain(foreign["volumes"]), _plain(foreign["volume_mounts"]))
    if name == "cmds":
        return _command(_plain(value), own)
    if name in _CONVERTERS:
        return _CONVERTERS[name](_plain(value))
    if not (path := KPO_PARAMETERS[name].path):
        return None
    result = _plain(value)
    for part in reversed(path[1:]):
        result = {part: [{"name": "node", **result}] if part == "containers" else result}
    return {path[0]: result}


def _plain(value: Any) -> Any:
    """Converts a value that may contain models of the Kubernetes client to plain data.

    Raises _NotConvertibleError if the value contains any other object.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if hasattr(value, "openapi_types") and hasattr(value, "attribute_map"):
        fields = ((value.attribute_map[name], getattr(value, name)) for name in value.openapi_types)
        return {name: _plain(each) for name, each in fields if each is not None}
    raise _NotConvertibleError


def _command(words: Any, own: Mapping[str, Any]) -> Arguments | None:
    """Converts `cmds`. torchrun replaces Python as the program that runs a script of a torch job.

    If `script` is given, `cmds` that run a script with Python have no effect.
    """
    runs_script = _is_words(words) and len(words) > 1 and words[1].endswith(".py") and _PYTHON.fullmatch(words[0])
    if _has_program(own):
        return {} if runs_script and own.get("script") is not None else None
    if runs_script and own.get("framework") in (None, "torch"):
        return {"command": [TORCHRUN, *words[1:]]}
    return {"command": words}


def _has_program(own: Mapping[str, Any]) -> bool:
    return any(own.get(each) is not None for each in _PROGRAM)


def _program(foreign: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Arguments]:
    """Converts `cmds` and `arguments` that start a launcher such as torchrun.

    The options for the number of nodes and processes become `num_nodes` and `procs_per_node`. If stepset itself sets a
    flag of torchrun, this flag is removed, even in the script of a shell. If a shell starts torchrun, `agent` becomes
    True. If `cmds` contains the launcher but not the program that the launcher starts, `cmds` and `arguments` together
    become `command`.

    Returns an empty mapping if there is no launcher, or if `own` also specifies a program, for example with `script`.
    """
    from stepset.frameworks.command_options import read_options
    from stepset.frameworks.launcher_options import GRAMMARS
    from stepset.plan.launchers import find_launcher

    parts = {name: foreign[name] for name in ("cmds", "arguments") if foreign.get(name)}
    if _has_program(own) or not all(_is_words(part) for part in parts.values()):
        return {}
    words = [word for part in parts.values() for word in part]
    if (launcher := find_launcher(words)) is None:
        return {}
    ranks = _ranks_of(launcher, own)
    if launcher.kind == "torchrun" and launcher.at is None:
        words = [_without_flags(word, launcher) for word in words]
        ranks |= {"agent": True} if own.get("agent") is None else {}
    first = len(parts["cmds"]) if "cmds" in parts else len(words)
    removed = _removed(launcher)
    program = read_options(launcher.words, GRAMMARS[launcher.kind]).program
    if not removed or (program is not None and (launcher.at or 0) + program < first):
        command = [word for at, word in enumerate(words[:first]) if at not in removed]
        rest = {"arguments": {"args": words[first:]}} if first < len(words) else {}
        return {next(iter(parts)): {"command": command, **ranks}, **rest}
    command = [word for at, word in enumerate(words) if at not in removed]
    return {name: {"command": command, **ranks} for name in parts}


def _is_words(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)


def _removed(launcher: Launcher) -> set[int]:
    """Returns the indexes of the torchrun flags that stepset itself sets, and of the values of these flags."""
    if launcher.kind != "torchrun" or launcher.at is None:
        return set()
    return {launcher.at + at for flag in _own_flags(launcher) for at in flag}


def _own_flags(launcher: Launcher) -> list[range]:
    """Returns the torchrun flags that stepset itself sets. Each range contains the indexes of a flag and its value."""
    from stepset.frameworks.command_options import read_options
    from stepset.frameworks.launcher_options import GRAMMARS, TORCHRUN_OPTIONS_SET_BY_STEPSET

    read = read_options(launcher.words, GRAMMARS["torchrun"]).read
    options = [option for option in read if option.name in TORCHRUN_OPTIONS_SET_BY_STEPSET]
    return [range(option.at, option.at + option.length) for option in options]


def _without_flags(script: str, launcher: Launcher) -> str:
    """Returns the script of a shell without the torchrun flags that stepset itself sets."""
    for flag in _own_flags(launcher):
        words = [f"[\"']?{re.escape(launcher.words[at])}[\"']?" for at in flag]
        script = re.sub("".join(rf"\s+{word}" for word in words) + r"(?=\s|$)", "", script, count=1)
    return script


def _ranks_of(launcher: Launcher, own: Mapping[str, Any]) -> Arguments:
    """Returns `num_nodes` and `procs_per_node` with the values that the options of a launcher specify.

    `num_nodes` is left out if the task has this parameter, or if the number is 1, which is the default.
    """
    from stepset.frameworks.launcher_options import described_world

    given = {setting.meaning: setting.value for setting in described_world(launcher).settings}
    nodes, procs, total = given.get("nodes", ""), given.get("procs", ""), given.get("total", "")
    if not procs and _is_number(nodes) and _is_number(total) and int(nodes) and int(total) % int(nodes) == 0:
        procs = str(int(total) // int(nodes))
    found: Arguments = {"procs_per_node": int(procs) if _is_number(procs) else procs} if procs else {}
    if _is_number(nodes) and nodes != "1" and own.get("num_nodes") is None:
        found["num_nodes"] = int(nodes)
    return found


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _environment(value: Any) -> Arguments:
    return {"env": value if isinstance(value, Mapping) else dict(map(_variable, value))}


def _variable(row: Mapping[str, Any]) -> tuple[str, Any]:
    source = row.get("valueFrom")
    if source is None:
        return row["name"], row.get("value", "")
    if "secretKeyRef" in source:
        return row["name"], {"secret": source["secretKeyRef"]["name"], "key": source["secretKeyRef"]["key"]}
    return row["name"], {"field": source["fieldRef"]["fieldPath"]}


def _secrets(secrets: list[Any]) -> Arguments:
    """Converts Airflow's Secret objects to environment variables, to sources of variables, and to volumes."""
    found: Arguments = {}
    for number, secret in enumerate(secrets):
        found = merged(found, _secret(secret, f"secret-{number}"))
    return found


def _secret(secret: Any, volume: str) -> Arguments:
    """Converts one Secret. `volume` is the name of the volume if the Secret is mounted as files."""
    if secret.deploy_type == "volume":
        mount = {"name": volume, "mountPath": secret.deploy_target, "readOnly": True}
        items = {"items": _plain(secret.items)} if secret.items else {}
        template = {
            "containers": [{"name": "node", "volumeMounts": [mount]}],
            "volumes": [{"name": volume, "secret": {"secretName": secret.secret, **items}}],
        }
        return {"pod_template": template}
    if not secret.deploy_target:
        source = {"secretRef": {"name": secret.secret}}
        return {"pod_template": {"containers": [{"name": "node", "envFrom": [source]}]}}
    return {"env": {secret.deploy_target: {"secret": secret.secret, "key": secret.key}}}


def _resources(value: Mapping[str, Any]) -> Arguments:
    requests, limits = value.get("requests"), value.get("limits")
    known = {name: each for name, each in (("requests", requests), ("limits", limits)) if each}
    return {"resources_per_node": requests if requests and requests == limits else known}


def _volumes(volumes: list[Mapping[str, Any]], mounts: list[Mapping[str, Any]]) -> Arguments:
    """Converts volumes and their mounts.

    A volume with a PersistentVolumeClaim becomes an entry of `storage`. Every other volume becomes a part of
    `pod_template`. stepset itself mounts a volume at /dev/shm. Therefore only the size of such a volume is converted.
    """
    memory: Arguments = {}
    storage, others, used = [], [], []
    for mount in mounts:
        (volume,) = (each for each in volumes if each["name"] == mount["name"])
        if mount["mountPath"] == _SHARED_MEMORY:
            if size := (volume.get("emptyDir") or {}).get("sizeLimit"):
                memory = {"resources_per_node": {"shm": size}}
            continue
        if (claim := volume.get("persistentVolumeClaim")) is None:
            others.append(mount)
            used += [volume] if volume not in used else []
            continue
        more = {"sub_path": mount["subPath"]} if mount.get("subPath") else {}
        if mount.get("readOnly") or claim.get("readOnly"):
            more["read_only"] = True
        storage.append({"path": mount["mountPath"], "claim": claim["claimName"], **more})
    template = {"containers": [{"name": "node", "volumeMounts": others}], "volumes": used}
    return {**({"storage": storage} if storage else {}), **({"pod_template": template} if others else {}), **memory}


def _skipped(value: Any) -> Arguments:
    return {"exit_code_policy": dict.fromkeys(value if isinstance(value, list) else [value], "skip")}


def _config_maps(names: list[str]) -> Arguments:
    sources = [{"configMapRef": {"name": name}} for name in names]
    return {"pod_template": {"containers": [{"name": "node", "envFrom": sources}]}}


_CONVERTERS: Mapping[str, Callable[[Any], Arguments]] = {
    "env_vars": _environment,
    "pod_runtime_info_envs": _environment,
    "container_resources": _resources,
    "configmaps": _config_maps,
    "skip_on_exit_code": _skipped,
    "is_delete_operator_pod": lambda deletes: {"on_finish_action": "delete" if deletes else "keep"},
}


def in_python(value: Any) -> str:
    """Returns a value as Python source code with double quotes.

    >>> in_python({"node_selector": {"pool": "gpu"}, "n": [1, True]})
    '{"node_selector": {"pool": "gpu"}, "n": [1, True]}'
    """
    return "".join(_parts(value))


def _parts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from ("{", ", ".join(f"{in_python(key)}: {in_python(each)}" for key, each in value.items()), "}")
    elif isinstance(value, (list, tuple)):
        yield from ("[", ", ".join(map(in_python, value)), "]")
    elif isinstance(value, str):
        from json import dumps

        yield dumps(value, ensure_ascii=False)
    else:
        yield repr(value)
