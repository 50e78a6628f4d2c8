"""The component `wait_for_training`.

No `from __future__ import annotations` here: KFP reads the annotations themselves. And no import but kfp, as in
kubeflow/pipelines-components, where a copy of this folder is a component too.
"""

import os

from kfp import dsl

# Built from deploy/kfp/Containerfile. The version is in the tag, and the tag in KFP's cache key: a newer stepset finds
# no older one's outputs. The name holds `python`, because KFP's local runner warns of images whose name does not.
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
    """Completes when a run that was started elsewhere succeeds; fails when it fails.

    Args:
        run: the run's name, or a job's: its newest run.
        report: ranks, phases and diagnosis.
        result: what its rank 0 wrote to STEPSET_RESULT_FILE.
        backend: auto (the cluster in a step's pod, else this machine), local or kubernetes.
        namespace: where the run is; default: the step's.
        timeout: seconds to wait, until it is there and until it is over.
    """
    given = dict(locals())

    from stepset_kfp.step.wait import wait

    wait(given)
