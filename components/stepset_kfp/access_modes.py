"""Decides whether pods on several nodes can mount a PersistentVolumeClaim."""

from __future__ import annotations

from collections.abc import Collection

WORKSPACE_MOUNT = "/kfp-workspace"
"""The directory at which KFP mounts a pipeline's workspace (kfp.dsl.constants.WORKSPACE_MOUNT_PATH)."""
WORKSPACE_REMEDY = (
    'dsl.WorkspaceConfig(SIZE, dsl.KubernetesWorkspaceConfig(pvcSpecPatch={"accessModes": ["ReadWriteMany"]}))'
)
"""The part of error messages that describes a workspace for training on several nodes."""


def allow_several_nodes(modes: Collection[str]) -> bool:
    """Returns whether pods on several nodes can mount a claim with these access modes.

    >>> allow_several_nodes(["ReadWriteOnce"])
    False
    """
    return bool({"ReadWriteMany", "ReadOnlyMany"} & set(modes))
