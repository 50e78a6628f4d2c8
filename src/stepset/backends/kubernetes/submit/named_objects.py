"""Finds missing claims and Secrets that the pods of a run name.

If a claim, a Secret or a key of a Secret does not exist, the API server accepts the pods, but the pods do not start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stepset.backends.kubernetes.api.client import Client, gather
from stepset.backends.kubernetes.api.lookup import Lookup, look_up
from stepset.backends.kubernetes.api.replies import Reply
from stepset.backends.kubernetes.api.resources import CLAIMS, SECRETS, Manifest
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.unstructured import Fields, part, rows, text


@dataclass(frozen=True)
class NamedObjects:
    """The result of `check_named_objects`.

    Args:
        problems: a line for each claim, Secret or key that does not exist.
        notes: a line that lists the objects that the account may not read. Empty if the account may read all objects.
    """

    problems: Sequence[str]
    notes: Sequence[str]


async def check_named_objects(
    client: Client, namespace: str, pods: Sequence[Manifest], objects: Sequence[Manifest], mapper: FieldMapper
) -> NamedObjects:
    """Checks whether the claims and Secrets that pods name exist. The messages contain no value of a Secret.

    Args:
        pods: one pod of each group.
        objects: the objects of the run. Secrets among these objects are not checked, because stepset creates them.

    Raises InfrastructureError if the server cannot be reached.
    """
    own = {str(each["metadata"]["name"]) for each in objects if each["kind"] == "Secret"}
    claims, secrets = dict[str, str](), dict[tuple[str, str], str]()
    for pod in pods:
        for claim, path in _claims(pod["spec"]):
            claims.setdefault(claim, mapper.field(pod, path) or path)
        for secret, key, path in _secrets(pod["spec"]):
            if secret not in own:
                secrets.setdefault((secret, key), mapper.field(pod, path) or path)
    names = list(dict.fromkeys(secret for secret, _ in secrets))
    found_claims = await gather(*(look_up(client, CLAIMS, namespace, each) for each in claims))
    replies = await gather(*(client.get(f"{SECRETS.path(namespace)}/{each}") for each in names))
    problems, unread = list[str](), list[str]()
    for (claim, field), known in zip(claims.items(), found_claims, strict=True):
        if known.missing:
            what = f"PersistentVolumeClaim {claim!r} does not exist in namespace {namespace}"
            problems.append(f"{field}: {what}; {known.remedy}")
        elif not known.readable:
            unread.append(f"PersistentVolumeClaim {claim}")
    by_name = dict(zip(names, replies, strict=True))
    for (secret, key), field in secrets.items():
        if by_name[secret].accepted or by_name[secret].lacks_object:
            problem = _secret_problem(by_name[secret], secret, key, namespace)
            problems += [f"{field}: {problem}"] if problem else []
        else:
            unread.append(f"Secret {secret}")
    listed = ", ".join(dict.fromkeys(unread))
    return NamedObjects(problems, [f"not checked, because you may not read it: {listed}"] if unread else [])


def _secret_problem(reply: Reply, name: str, key: str, namespace: str) -> str:
    """Returns why a pod cannot use a key of a Secret; "" if it can. An empty `key` stands for the whole Secret."""
    if reply.lacks_object:
        return f"Secret {name!r} does not exist in namespace {namespace}; {Lookup().remedy}"
    keys = part(reply.body, "data")
    return f"Secret {name!r} has no key {key!r}; {Lookup(others=list(keys)).remedy}" if key and key not in keys else ""


def _claims(spec: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yields the name of each claim in the spec of a pod, and the path of the volume."""
    for number, volume in enumerate(rows(spec, "volumes")):
        if name := text(part(volume, "persistentVolumeClaim"), "claimName"):
            yield name, f"spec.volumes[{number}].persistentVolumeClaim.claimName"


def _secrets(spec: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yields the name of each Secret in the spec of a pod, a key or "", and the path of the reference.

    Omits optional references, because a pod starts without the objects of these references.
    """
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(rows(spec, kind)):
            for row, variable in enumerate(rows(container, "env")):
                used = part(variable, "valueFrom", "secretKeyRef")
                yield from _required(used, "name", text(used, "key"), f"spec.{kind}[{number}].env[{row}]")
            for row, source in enumerate(rows(container, "envFrom")):
                yield from _required(part(source, "secretRef"), "name", "", f"spec.{kind}[{number}].envFrom[{row}]")
    for number, volume in enumerate(rows(spec, "volumes")):
        used, path = part(volume, "secret"), f"spec.volumes[{number}].secret"
        yield from _required(used, "secretName", "", f"{path}.secretName")
        for row, item in enumerate(rows(used, "items")):
            yield from _required(used, "secretName", text(item, "key"), f"{path}.items[{row}].key")


def _required(used: Fields, name: str, key: str, path: str) -> Iterator[tuple[str, str, str]]:
    """Yields one reference to a Secret if it exists and is not optional. `name` is the field with the Secret's name."""
    if text(used, name) and used.get("optional") is not True:
        yield text(used, name), key, path
