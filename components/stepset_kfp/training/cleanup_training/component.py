"""The component `cleanup_training`.

No `from __future__ import annotations` here: KFP reads the annotations themselves.
"""

from kfp import dsl

from stepset_kfp.image import base_image


@dsl.component(base_image=base_image(), install_kfp_package=False)
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

    from stepset_kfp.cleanup import clean_up

    clean_up(given)
