"""The component `wait_for_training`.

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
def wait_for_training(
    run: str,
    report: dsl.Output[dsl.HTML],
    result: dsl.OutputPath(dict),
    backend: str = "auto",
    namespace: str = "",
    timeout: int = 86400,
    encoded_inputs: dict = {},
):
    """Waits for a run that was started elsewhere; fails if the run fails.

    Args:
        run: the name of a run or of a job. For a job, the component waits for the newest run of the job.
        report: ranks, phases and diagnosis.
        result: the result that rank 0 wrote to STEPSET_RESULT_FILE.
        backend: auto, local or kubernetes. auto means kubernetes if the step runs in a pod, and local otherwise.
        namespace: namespace of the run; default: the step's.
        timeout: maximum seconds until the run exists and has ended.
        encoded_inputs: inputs with run-time values inside a text; set by stepset_kfp.wait_for_training.
    """
    given = dict(locals())

    from stepset_kfp.step.wait import wait

    wait(given)
