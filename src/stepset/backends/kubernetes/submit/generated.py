"""Replaces placeholders in rendered objects by values that are generated for each run.

A command that only prints the rendered objects prints the placeholders.
"""

from __future__ import annotations

import secrets
from typing import Any

from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.submit.ssh_keys import with_keys
from stepset.targets.config_maps import placeholder
from stepset.targets.names import RENDEZVOUS_KEY


def with_generated_values(manifest: Manifest) -> dict[str, Any]:
    """Returns a rendered object in which new ssh keys or a new rendezvous ID replace the placeholders."""
    if manifest["kind"] == "ConfigMap" and manifest.get("data", {}).get(RENDEZVOUS_KEY) == placeholder(RENDEZVOUS_KEY):
        return {**manifest, "data": {**manifest["data"], RENDEZVOUS_KEY: secrets.token_hex(16)}}
    return with_keys(manifest)
