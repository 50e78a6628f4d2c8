"""The component `wait_for_training`.

No `from __future__ import annotations` here: KFP needs annotations as objects, not text. The module imports only kfp,
so that the folder can be copied to kubeflow/pipelines-components.
"""

import os

from kfp import dsl

# Built from deploy/kfp/Containerfile. The tag contains the version and is part of KFP's cache key, so a newer stepset
# does not reuse outputs of an older one. KFP's local runner warns about image names that do not contain `python`.
IMAGE = os.environ.get("STEPSET_KFP_IMAGE") or "stepset/kfp-python:0.1.0"


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def wait_for_training(
    run: str,
    report: dsl.Output[dsl.HTML],
    result: dsl.OutputPath(dict),
    backend: str = "auto",
    namespace: str = "",
    timeout: int = 86400,
):
    """Waits for a run that was started elsewhere; fails if the run fails.

    Args:
        run: a run's name, or a job's name for its newest run.
        report: ranks, phases and diagnosis.
        result: the result that rank 0 wrote to STEPSET_RESULT_FILE.
        backend: auto (the cluster in a step's pod, else this machine), local or kubernetes.
        namespace: namespace of the run; default: the step's.
        timeout: maximum seconds until the run exists and has ended.
    """
    given = dict(locals())

    from stepset_kfp.step.wait import wait

    wait(given)
