"""The component `cleanup_training`.

No `from __future__ import annotations` here: KFP needs annotations as objects, not text. The module imports only kfp,
so that the folder can be copied to kubeflow/pipelines-components.
"""

import os

from kfp import dsl

# Built from deploy/kfp/Containerfile. The tag contains the version and is part of KFP's cache key, so a newer stepset
# does not reuse outputs of an older one. KFP's local runner warns about image names that do not contain `python`.
IMAGE = os.environ.get("STEPSET_KFP_IMAGE") or "stepset/kfp-python:0.1.0"


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def cleanup_training(
    run: str = "",
    succeeded_too: bool = False,
    backend: str = "auto",
    target: str = "jobset",
    namespace: str = "",
):
    """Ends and deletes the trainings of this pipeline run that have not succeeded; for use in dsl.ExitHandler.

    Args:
        run: name of the run to delete; default: all runs that the steps of this pipeline run have created.
        succeeded_too: also delete runs that have succeeded.
        backend: auto (the cluster in a step's pod, else this machine), local or kubernetes. Local runs end with
            their steps.
        target: kind of the runs on a cluster: jobset, trainjob, statefulset, job or volcano.
        namespace: namespace of the runs; default: the step's.
    """
    given = dict(locals())

    from stepset_kfp.step.cleanup import clean_up

    clean_up(given)
