"""Names that Argo Workflows 4.0.5 gives to the nodes of pipelines of KFP 2.17.0, recorded from the real backend."""

WORKFLOW = "digits-x7k2p"


def step_node(task: str = "train", *, try_number: int = 0, above: int = 0) -> str:
    """Returns the name of a step's node.

    Args:
        task: the name of the step in the pipeline.
        try_number: the number of the executor's try.
        above: how often Argo has retried the level above the executor.
    """
    return f"{WORKFLOW}(0).root(0).{task}({above}).executor({try_number})"
