"""`@task.distributed_train`: runs the decorated function in every rank. get_provider_info registers it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory
from airflow.sdk.exceptions import AirflowFailException

from stepset_airflow.operators.distributed_train import DistributedTrainOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class _DecoratedTrainOperator(DecoratedOperator, DistributedTrainOperator):
    """The operator behind the decorator."""

    custom_operator_name = "@task.distributed_train"
    template_fields: Sequence[str] = (
        *DecoratedOperator.template_fields,
        *(field for field in DistributedTrainOperator.template_fields if field != "function"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DistributedTrainOperator.template_fields_renderers,
        **DecoratedOperator.template_fields_renderers,
    }
    _sets_function: ClassVar[bool] = True

    def execute(self, context: Context) -> Any:
        """Runs the function in every rank; pushes rank 0's return value as the task's XCom."""
        from stepset.errors import BadInputError
        from stepset.functions import program_text

        try:
            self.function = program_text(
                source_of(self.python_callable), self.python_callable.__name__, list(self.op_args), self.op_kwargs
            )
        except BadInputError as error:
            raise AirflowFailException(str(error)) from error
        return super().execute(context)


def source_of(function: Callable[..., Any]) -> str:
    """Returns a function's source text, unindented and without its decorators.

    Airflow's get_python_source also drops lines within strings that start with '#'; this function keeps them.
    """
    text = textwrap.dedent(inspect.getsource(function))
    definition = ast.parse(text).body[0]
    return "".join(text.splitlines(keepends=True)[getattr(definition, "lineno", 1) - 1 :])


def distributed_train_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Makes a function a task that runs it in every rank of a distributed training.

    The ranks receive only the function's text, so the function must contain its imports. Its arguments and rank 0's
    return value must be serializable as JSON.

    Args:
        python_callable: the function.
        multiple_outputs: push each key of a returned mapping as an XCom of its own.
        kwargs: DistributedTrainOperator's parameters, except script, module, command and function.

    Raises:
        ValueError: an argument whose value is known when the DAG file is parsed is invalid.
        TypeError: an unknown parameter.
    """

    def decorate(function: Callable[..., Any]) -> TaskDecorator:
        # A mapped task is no object of the operator before a worker executes it.
        _DecoratedTrainOperator.check_arguments({"task_id": function.__name__, **kwargs})
        return task_decorator_factory(
            python_callable=function,
            multiple_outputs=multiple_outputs,
            decorated_operator_class=_DecoratedTrainOperator,
            **kwargs,
        )

    return cast("TaskDecorator", decorate) if python_callable is None else decorate(python_callable)
