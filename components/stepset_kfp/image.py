"""The image the components' steps run in: deploy/kfp/Containerfile. Read when a component is defined.

Its name holds `python`, because KFP's local runner warns of images whose name does not.
"""

from __future__ import annotations

import os
from importlib.metadata import version

IMAGE_VARIABLE = "STEPSET_KFP_IMAGE"


def base_image() -> str:
    """`$STEPSET_KFP_IMAGE` where it is set when a pipeline is compiled, else the released image of this version.

    The version is in the tag, and the tag in KFP's cache key: a newer stepset finds no older one's outputs.
    """
    return os.environ.get(IMAGE_VARIABLE) or f"stepset/kfp-python:{version('stepset')}"
