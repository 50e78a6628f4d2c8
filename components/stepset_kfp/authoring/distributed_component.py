"""The class of the component that `distribute` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kfp.dsl.python_component import PythonComponent

from stepset_kfp.authoring.checkpoints import check_checkpoint_dir
from stepset_kfp.authoring.cleanup_scope import add_training
from stepset_kfp.authoring.cluster_checks import check_shared_dir, check_step, log_pod_notes, place_of
from stepset_kfp.authoring.display_name import given_name
from stepset_kfp.authoring.distributed_train import as_arguments
from stepset_kfp.authoring.encoding import Encoder, with_inputs
from stepset_kfp.authoring.task_settings import check_at_compilation
from stepset_kfp.encoding import ENCODED_ARGUMENTS

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask
    from kfp.dsl.structures import ComponentSpec

_REMEDY = "omit checkpoint_dir, and pass"
"""The start of the remedies for a wrong `checkpoint_dir`. The settings of `distribute` cannot be run-time values."""


class DistributedComponent(PythonComponent):  # type: ignore[misc]  # kfp has no types
    """A lightweight component whose function runs in every rank.

    When a pipeline creates a task of the component, the component checks the step's image and the pipeline's workspace,
    and logs the notes about the training pods.

    Args:
        component_spec: the specification of the component.
        python_func: the function.
        settings: the keyword arguments of `distribute`.
        notes: notes about the training pods of a cluster.
    """

    def __init__(
        self,
        component_spec: ComponentSpec,
        python_func: Callable[..., Any],
        settings: Mapping[str, Any],
        notes: Iterable[str],
    ) -> None:
        super().__init__(component_spec=component_spec, python_func=python_func)
        self._settings = settings
        self._notes = tuple(notes)

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineTask:
        """Returns a task of the component.

        Raises BadInputError if several nodes would mount a workspace that only one node can mount.
        """
        place = place_of(self, given_name(self._settings))
        check_step(place, self)
        if self._settings.get("backend") != "local":
            log_pod_notes(place, self._notes)
            shared_dir = self._settings.get("shared_dir") or ""
            check_shared_dir(place, self._settings.get("num_nodes", 1), shared_dir, kwargs)
        add_training(place, self._settings)
        check_checkpoint_dir(place, self._settings, f"{_REMEDY} the directory to an input of the function")
        encoder = Encoder(self.component_spec.inputs or {})
        if encoded := encoder.arguments(kwargs):
            kept = {name: value for name, value in kwargs.items() if name not in encoded}
            further = {ENCODED_ARGUMENTS: encoded, **encoder.values}
            task = with_inputs(self, further, without=encoded)(*args, **kept, **further)
        else:
            task = super().__call__(*args, **kwargs)
        remedy = f"{_REMEDY} a directory of the workspace to an input of the function"
        arguments = as_arguments({**self._settings, "function": "pass"})
        check_at_compilation(task, place, self._settings, arguments, remedy)
        return task
