"""Checks that no other user can replace a directory on the path of stepset's own files.

A user who may rename a directory above a run can replace this directory, and therefore also the program that the run
executes. OpenSSH checks the path of `authorized_keys` for the same reason (OpenSSH 10, misc.c, safe_path).
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from stepset.errors import InfrastructureError

_MAX_LINKS = 40
"""The maximum number of symbolic links in a path (Linux, include/linux/namei.h, MAXSYMLINKS)."""
_ACL = "system.posix_acl_access"


def check_path(path: Path, variable: str, *, checked: Path | None = None) -> None:
    """Checks each existing directory and each symbolic link from the root directory to `path`, in this order.

    A directory or link must belong to this user or to root, and no other user may be able to write to the directory. A
    directory with the sticky bit may be writable, because other users cannot rename the entries of this user and of
    root. Each directory is checked before its entries are examined. Therefore another user cannot replace a part of the
    path between this check and the use of the path.

    Args:
        path: an absolute path. Its last parts may be missing.
        variable: the environment variable that selects the path, for the error message.
        checked: a directory above `path` that was checked before, and therefore cannot have been replaced. Only the
            parts below this directory are checked.

    Raises:
        InfrastructureError: another user could replace a part of the path, or a part cannot be examined.
    """
    place = checked or Path("/")
    rest = list(reversed(path.relative_to(place).parts))
    links = 0
    try:
        if checked is None:
            _check(place, path, variable)
        while rest:
            name = rest.pop()
            if name == "..":
                place = place.parent  # no part of `place` is a link
                continue
            about = _check(place / name, path, variable)
            if not stat.S_ISLNK(about.st_mode):
                place /= name
                continue
            if checked is not None:  # the directory may contain links, so its parent may be another directory
                check_path(path, variable)
                return
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = Path(os.readlink(place / name))  # noqa: PTH115  # Path.readlink returns a Path, too
            rest += reversed(target.parts[target.is_absolute() :])
            place = Path("/") if target.is_absolute() else place
    except (FileNotFoundError, NotADirectoryError):
        return  # the rest of the path cannot be used before it is created
    except OSError as error:
        raise InfrastructureError(
            f"{path}: cannot be examined: {error.strerror}; set {variable} to another directory"
        ) from error


def _check(each: Path, path: Path, variable: str) -> os.stat_result:
    about, user = each.lstat(), os.geteuid()
    problem = remedy = ""
    if about.st_uid not in _trusted_owners(user):
        problem = f"{each} belongs to user {about.st_uid}"
        if user == 0 and os.environ.get("SUDO_UID", "0") != "0":
            remedy = "use sudo -H, or "
    elif stat.S_ISDIR(about.st_mode) and not about.st_mode & stat.S_ISVTX:
        if about.st_mode & stat.S_IWOTH:
            problem = "" if _of_this_pod(each) else f"every user can write to {each}"
        elif about.st_mode & stat.S_IWGRP and not _only_member(each, about.st_gid):
            problem = f"group {about.st_gid} can write to {each}"
        if about.st_uid == user:
            remedy = f"run chmod go-w {shlex.quote(str(each))}, or "
    if problem:
        raise InfrastructureError(
            f"{path}: {problem}, and another user could replace the files of stepset; {remedy}set {variable} to a"
            f" directory that only user {user} can write to"
        )
    return about


@cache
def _trusted_owners(user: int) -> frozenset[int]:
    """Returns the uids of a user and of root.

    In a user namespace that does not contain root, such as an unprivileged Apptainer container, files of root have the
    overflow uid.
    """
    owners = {0, user}
    with suppress(OSError, ValueError):  # not Linux
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
        rows = [[int(word) for word in row.split()] for row in Path("/proc/self/uid_map").read_text().splitlines()]
        if not any(first <= overflow < first + count for first, _, count in rows):
            owners.add(overflow)
    return frozenset(owners)


def _only_member(each: Path, gid: int) -> bool:
    """Returns whether no account except root and this user is a member of a group that may write to a directory.

    With umask 002, the directories of a user are writable by the user's private group. Kubernetes makes volumes
    writable by the group `fsGroup` of a pod. OpenShift uses the group root.
    """
    with suppress(OSError, AttributeError):  # the file system has no access control lists, or the system is not Linux
        os.getxattr(each, _ACL, follow_symlinks=False)
        return False  # the bits of the group are then the mask of the list, which can name other users
    if gid == 0:
        return True
    user, accounts = os.geteuid(), pwd.getpwall()
    own = {account.pw_name for account in accounts if account.pw_uid in (0, user)}
    members = {account.pw_name for account in accounts if account.pw_gid == gid}
    name = ""
    with suppress(KeyError):
        group = grp.getgrgid(gid)
        name, members = group.gr_name, members | set(group.gr_mem)
    with suppress(KeyError):
        account = pwd.getpwuid(user).pw_name
        if account not in own:  # a directory service that does not list its accounts: only a private group is certain
            return name == account and members <= {account}
    return members <= own


def _of_this_pod(each: Path) -> bool:
    """Returns whether a directory is the volume `emptyDir` of a Kubernetes pod. Only the pod's containers can use it.

    The kubelet makes this directory writable by every user, without the sticky bit (kubernetes v1.36,
    pkg/volume/emptydir/empty_dir.go).
    """
    with suppress(OSError):  # not Linux
        for row in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            _, _, _, root, at, *_ = row.split(" ")
            if at == str(each) and "/kubernetes.io~empty-dir/" in root:
                return True
    return False
