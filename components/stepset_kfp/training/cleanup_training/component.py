"""The component `cleanup_training`.

No `from __future__ import annotations` here: KFP reads the annotations themselves. And no import but kfp, as in
kubeflow/pipelines-components, where a copy of this folder is a component too.
"""

import os

from kfp import dsl

# Built from deploy/kfp/Containerfile. The version is in the tag, and the tag in KFP's cache key: a newer stepset finds
# no older one's outputs. The name holds `python`, because KFP's local runner warns of images whose name does not.
IMAGE = os.environ.get("STEPSET_KFP_IMAGE") or "stepset/kfp-python:0.1.0"


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def cleanup_training(
    run: str = "",
    succeeded_too: bool = False,
    backend: str = "auto",
    target: str = "jobset",
    namespace: str = "",
):
    """Ends the trainings of this pipeline's run that are not over, and deletes their objects; for dsl.ExitHandler.

    Args:
        run: only the run of that name; default: all that steps of this pipeline's run have begun.
        succeeded_too: delete also what has succeeded.
        backend: auto (the cluster in a step's pod, else this machine), local or kubernetes. Local runs end with
            their steps.
        target: what the runs are on a cluster.
        namespace: where the runs are; default: the step's.
    """
    given = dict(locals())

    from stepset_kfp.step.cleanup import clean_up

    clean_up(given)
