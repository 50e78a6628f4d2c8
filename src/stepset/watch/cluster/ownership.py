"""Which objects belong to a workload, by the uids of their owners."""

from __future__ import annotations

from collections.abc import Iterable

from stepset.watch.cluster.unstructured import Fields, part, rows, text


def owned(objects: Iterable[Fields], uid: str) -> list[Fields]:
    """Returns the workload with this uid, the objects that it owns (also indirectly) and their events, owners first."""
    found, uids, left = list[Fields](), {uid}, [(each, _uids(each)) for each in objects]
    while belonging := [each for each, theirs in left if not uids.isdisjoint(theirs)]:
        left = [(each, theirs) for each, theirs in left if uids.isdisjoint(theirs)]
        found += belonging
        uids |= {text(part(each, "metadata"), "uid") for each in belonging}
    return found


def _uids(data: Fields) -> set[str]:
    """The uids of an object, of its owners, and of the object that an event is about, without empty ones."""
    meta = part(data, "metadata")
    owners = {text(owner, "uid") for owner in rows(meta, "ownerReferences")}
    return (owners | {text(meta, "uid"), text(part(data, "involvedObject"), "uid")}) - {""}
