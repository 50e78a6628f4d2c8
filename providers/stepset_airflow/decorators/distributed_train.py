"""The decorator `@task.distributed_train`, which runs the decorated function in every rank of a run.

get_provider_info.py registers the decorator in Airflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory
from airflow.sdk.exceptions import AirflowFailException

from stepset_airflow.airflow_internals import checked_decorator, is_unmapping
from stepset_airflow.operators.distributed_train import DistributedTrainOperator
from stepset_airflow.parsing.arguments import check_context_keys, check_function, check_json

if TYPE_CHECKING:
    from airflow.sdk import Context


class _DecoratedTrainOperator(DecoratedOperator, DistributedTrainOperator):
    """The operator that the decorator creates."""

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

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not is_unmapping(self):
            check_context_keys(self.python_callable, self.op_args, self.op_kwargs, kwargs)
            check_json(self.op_args, self.op_kwargs, kwargs)

    def execute(self, context: Context) -> Any:
        """Runs the function in every rank, and returns the value that the function returned in rank 0."""
        from stepset.errors import BadInputError
        from stepset.functions.definition import source_of
        from stepset.functions.program import program_text

        try:
            self.function = program_text(
                source_of(self.python_callable), self.python_callable.__name__, list(self.op_args), self.op_kwargs
            )
        except BadInputError as error:
            raise AirflowFailException(str(error)) from None
        return super().execute(context)


def distributed_train_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Turns a function into a task that runs the function in every rank of a distributed training.

    The ranks receive only the source code of the function. Therefore all imports must be inside the function. The
    arguments of the function must be serializable as JSON. The value that the function returns in rank 0 must also be
    serializable as JSON. The ranks do not have Airflow's context. Therefore each parameter that has the name of a
    context key, such as `ti`, needs an argument. In a mapped task, such a parameter needs a default value, because
    `partial` and `expand` do not accept an argument of this name.

    Args:
        python_callable: the function.
        multiple_outputs: whether each key of a mapping that the function returns is pushed as a separate XCom.
        kwargs: the parameters of DistributedTrainOperator, except script, module, command and function.

    Raises:
        ValueError: an argument is invalid, and its value is known when Airflow parses the DAG file. Also raised if the
            source of the function cannot be shipped, for example because it uses names of the DAG file, if the function
            expects values of Airflow's context, or if an argument of its call is not JSON data.
        TypeError: a parameter is unknown.
    """

    def decorate(function: Callable[..., Any]) -> TaskDecorator:
        place = {"task_id": getattr(function, "__name__", None), **kwargs}
        check_function(function, place)
        decorator = task_decorator_factory(
            python_callable=function,
            multiple_outputs=multiple_outputs,
            decorated_operator_class=_DecoratedTrainOperator,
            **kwargs,
        )

        # Airflow calls the constructor of the operator for a mapped task only when the task runs in a worker.
        def check(arguments: Mapping[str, Any]) -> None:
            _DecoratedTrainOperator.check_arguments(arguments, ())
            op_args, op_kwargs = arguments.get("op_args") or (), arguments.get("op_kwargs") or {}
            check_context_keys(function, op_args, op_kwargs, arguments, mapped=True)
            check_json(op_args, op_kwargs, arguments)

        return checked_decorator(decorator, check)

    return cast("TaskDecorator", decorate) if python_callable is None else decorate(python_callable)
