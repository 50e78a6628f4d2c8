"""Converts the server's rejections of objects into messages about fields of the job file.

The patterns match the messages of Kubernetes 1.36, and the messages of the webhooks of JobSet 0.12 and Trainer 2.3. If
a message matches no pattern, the message is reported unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.submit.field_map import FieldMapper
from stepset.targets.pods.security import LACKS_RESTRICTED, REMEDY
from stepset.targets.pods.service_account import creation_after
from stepset.unstructured import one_line, part, rows, text

_LIMIT = 300
_PREFIXES = (
    re.compile(r'^admission webhook "(?P<hook>[^"]+)" denied the request: '),
    re.compile(r'^[\w.-]+ "[^"]*" is (?:invalid|forbidden): '),
    re.compile(r'^\w+ in version "[^"]*" cannot be handled as a \w+: '),
)
_EXAMPLES = re.compile(r" \(e\.g\. .*?, regex used for validation is '[^']*'\)")
_UNKNOWN_FIELD = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_UNDECODABLE = re.compile(r"cannot unmarshal (\w+) into Go struct field [A-Za-z]+\.([\w.]+) of type \S*?(\w+)$")
_PLACED = re.compile(r"^((?:spec|metadata)\b[^\s:]*): (.*)$", re.DOTALL)

_Place = Callable[[FieldMapper, Manifest], str]

# The reasons why admission rejects a whole pod. Each row contains a pattern, the field of the job, and the advice.
_ADMISSION: tuple[tuple[str, _Place, str], ...] = (
    (r"exceeded quota|failed quota", FieldMapper.resources, "stay within the namespace's quota, or have it raised"),
    (
        r"\b(minimum|maximum|max limit to request ratio|min limit)\b.* per (Container|Pod)",
        FieldMapper.resources,
        "stay within the namespace's LimitRange",
    ),
    (
        r"error looking up service account",
        lambda mapper, _: mapper.scheduling("serviceAccountName"),
        "create it, or use another service account",
    ),
    (
        r"no PriorityClass with name",
        lambda mapper, _: mapper.scheduling("priorityClassName"),
        "use one that `kubectl get priorityclasses` lists",
    ),
    (
        r"RuntimeClass .* not found",
        lambda mapper, _: mapper.template("runtimeClassName"),
        "use one that `kubectl get runtimeclasses` lists",
    ),
    (LACKS_RESTRICTED, lambda mapper, _: "security", REMEDY),
    (
        r"violates PodSecurity",
        lambda mapper, _: mapper.template("securityContext"),
        "set the fields that the policy requires, or use a namespace with another policy",
    ),
)


def rejections(status: Manifest, manifest: Manifest, mapper: FieldMapper) -> Iterator[str]:
    """Yields one line for each reason in a Status. The server has returned the Status for the manifest."""
    placed = [each for each in rows(part(status, "details"), "causes") if _PLACED.match(f"{text(each, 'field')}: ")]
    if placed and status.get("reason") == "Invalid":
        for cause in placed:
            yield _line(manifest, mapper, text(cause, "field"), text(cause, "message"))
        return
    message = text(status, "message") or f"HTTP {status.get('code', '?')}"
    hook = ""
    for pattern in _PREFIXES:
        if found := pattern.match(message):
            hook = found.groupdict().get("hook", hook)
            message = message[found.end() :]
    yield from _unplaced(message, hook, manifest, mapper)


def unknown_fields(warning: str, manifest: Manifest, mapper: FieldMapper) -> str:
    """Returns a server's warning.

    If the warning is about an unknown field of the manifest, the returned warning names the corresponding field of the
    job file, if this field exists.
    """
    if found := _UNKNOWN_FIELD.search(warning):
        field = mapper.field(manifest, found[2]) or f"{manifest['kind']} {_shortened(found[2])}"
        return f"{field}: the server ignores this unknown field; its version may be older than stepset expects"
    return _shortened(warning)


def _unplaced(message: str, hook: str, manifest: Manifest, mapper: FieldMapper) -> Iterator[str]:
    fields = _UNKNOWN_FIELD.findall(message)
    if fields:
        for what, path in fields:
            yield _line(manifest, mapper, path, f"{what} field")
    elif found := _UNDECODABLE.search(message):
        yield _line(manifest, mapper, found[2], f"is a {found[1]}, and must be a {found[3]}")
    elif found := _PLACED.match(message):
        yield _line(manifest, mapper, found[1], found[2])
    elif known := next((each for each in _ADMISSION if re.search(each[0], message)), None):
        _, place, remedy = known
        remedy = creation_after(message) or remedy
        yield f"{place(mapper, manifest)}: the server refuses it: {_shortened(message)}; {remedy}"
    else:
        who = f"the admission webhook {hook}" if hook else "the server"
        yield f"{_name(manifest)}: {who} refuses it: {_shortened(message)}"


def _line(manifest: Manifest, mapper: FieldMapper, path: str, reason: str) -> str:
    field = mapper.field(manifest, path) or f"{_name(manifest)}: {_shortened(path)}"
    return f"{field}: the server refuses it: {_shortened(reason)}"


def _name(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _shortened(words: str) -> str:
    """Returns a server's message as one line of at most 300 characters, without the examples of valid values."""
    return one_line(_EXAMPLES.sub("", words), _LIMIT)
