"""Which of a task's settings go to the training pods; listed by every component that takes a TaskConfig."""

from __future__ import annotations

from kfp import dsl

# A setting that is not listed would be a compile error. Variables and volumes reach the step too: it may have to read
# what the training wrote.
PASSTHROUGHS = [
    dsl.TaskConfigField.RESOURCES,
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.ENV, apply_to_task=True),
    dsl.TaskConfigField.KUBERNETES_AFFINITY,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.KUBERNETES_VOLUMES, apply_to_task=True),
]


def normalized() -> list[dsl.TaskConfigPassthrough]:
    """The same in the one form that a component's spec holds."""
    whole = dsl.TaskConfigPassthrough
    return [each if isinstance(each, whole) else whole(field=each, apply_to_task=False) for each in PASSTHROUGHS]
