"""The component `cleanup_training`.

This module does not use `from __future__ import annotations`, because KFP needs annotations as objects, not as text.
The module imports only kfp at the top level. Therefore the folder can be copied to kubeflow/pipelines-components.
"""

import os

from kfp import dsl

# The image is built from deploy/kfp/Containerfile. Its tag contains the version of stepset and is part of KFP's cache
# key. Therefore a newer version does not reuse outputs of an older version. The name contains `python`, because KFP's
# local runner logs a warning about other names.
IMAGE = os.environ.get("STEPSET_KFP_IMAGE") or "stepset/kfp-python:0.1.0"


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def cleanup_training(
    run: str = "",
    succeeded_too: bool = False,
    backend: str = "auto",
    target: str = "jobset",
    namespace: str = "",
    encoded_inputs: dict = {},
):
    """Deletes the trainings of this pipeline run, except trainings that have succeeded. For use in dsl.ExitHandler.

    Args:
        run: name of the run to delete; default: all runs that the steps of this pipeline run have created.
        succeeded_too: also delete runs that have succeeded.
        backend: auto, local (deletes nothing) or kubernetes. auto means kubernetes in a pod, and local otherwise.
        target: kind of the runs on a cluster: jobset, trainjob, statefulset, job or volcano.
        namespace: namespace of the runs; default: the step's.
        encoded_inputs: inputs with run-time values inside a text; set by stepset_kfp.cleanup_training.
    """
    given = dict(locals())

    from stepset_kfp.step.cleanup import clean_up

    clean_up(given)
