"""The decorator reports functions that cannot run in the ranks when Airflow parses a DAG file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

pytestmark = pytest.mark.airflow


class TestContextKeys:
    """The ranks do not have Airflow's context."""

    def test_without_arguments_are_an_error_with_the_remedy(self) -> None:
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match="context") as raised:

            @task.distributed_train(num_nodes=2, image="train:1")
            def fit(data: str, ti: Any = None, params: Any = None) -> None: ...

            fit("x")
        assert str(raised.value) == (
            "DAG 'nightly', task 'fit': function: fit expects ti, params of Airflow's context, which the ranks do not"
            ' have; pass the values that it needs as arguments, such as fit(run_id="{{ run_id }}")'
        )

    def test_are_reported_together_with_names_of_the_dag_file(self) -> None:
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match="from outside") as raised:

            @task.distributed_train(num_nodes=2, image="train:1")
            def fit(data: str, ti: Any = None, params: Any = None) -> str:
                return Path(data).name

        first, second = str(raised.value).splitlines()
        assert "function: fit uses Path from outside" in first
        assert second.endswith(
            ": function: the ranks do not have Airflow's context; if a call of fit has no argument for ti, params, add"
            " one"
        )

    def test_without_defaults_are_an_error_in_a_mapped_task(self) -> None:
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match="context") as raised:

            @task.distributed_train(num_nodes=2, image="train:1")
            def fit(data: str, ti: Any) -> None: ...

            fit.override(task_id="tune").expand(data=["x"])
        assert str(raised.value) == (
            "DAG 'nightly', task 'tune': function: fit expects ti of Airflow's context, which the ranks do not have;"
            " rename the parameter"
        )

    def test_with_defaults_or_in_op_kwargs_are_ordinary_parameters_of_a_mapped_task(self) -> None:
        with DAG("nightly", schedule=None):

            @task.distributed_train(num_nodes=2, image="train:1", op_kwargs={"run_id": "{{ run_id }}"})
            def fit(lr: float, run_id: str, params: Any = None) -> None: ...

            fit.expand(lr=[0.1, 0.2])

    def test_with_arguments_are_ordinary_parameters(self) -> None:
        with DAG("nightly", schedule=None):

            @task.distributed_train(num_nodes=2, image="train:1")
            def fit(run_id: str, params: dict[str, float]) -> None: ...

            fit("{{ run_id }}", params={"lr": 0.1})

    def test_loop_is_an_ordinary_name_outside_of_loops(self) -> None:
        with DAG("nightly", schedule=None):

            @task.distributed_train(num_nodes=2, image="train:1")
            def fit(loop: int = 3) -> None: ...

            @task.distributed_train(num_nodes=2, image="train:1")
            def tune(loop: int | None = None) -> None: ...

            fit()
            tune()


def without_line(error: ValueError) -> str:
    """Returns the message of an error without the line of the function, which it must contain."""
    message, count = re.subn(rf", {Path(__file__).name}:\d+: ", ": ", str(error))
    assert count == 1
    return message


class TestTheKindOfTheFunction:
    def test_a_decorator_below_is_an_error_because_it_is_not_part_of_the_source(self) -> None:
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match="lru_cache") as raised:

            @task.distributed_train(num_nodes=2, image="train:1")
            @lru_cache
            def fit() -> int:
                return 1

        assert without_line(raised.value) == (
            "DAG 'nightly', task 'fit': function: the decorator @lru_cache of fit is not shipped; remove it, or apply"
            " it inside fit"
        )
        assert raised.value.__suppress_context__, "the import error would show a second traceback"

    def test_a_decorator_below_may_contain_the_name_of_the_decorator(self) -> None:
        def log_distributed_train(function: Any) -> Any:
            return wraps(function)(lambda: function())

        with DAG("nightly", schedule=None), pytest.raises(ValueError, match="@log_distributed_train of fit is not"):

            @task.distributed_train(num_nodes=2, image="train:1")
            @log_distributed_train
            def fit() -> int:
                return 1

    def test_a_decorator_of_airflow_above_is_accepted(self) -> None:
        with DAG("nightly", schedule=None):

            @task.skip_if(lambda context: context["params"]["skip"])
            @task.distributed_train(num_nodes=2, image="train:1")
            def fit() -> int:
                return 1

            fit()

    def test_an_async_function_is_an_error(self) -> None:
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match="async") as raised:

            @task.distributed_train(num_nodes=2, image="train:1")
            async def fit() -> int:
                return 1

        assert without_line(raised.value) == (
            "DAG 'nightly', task 'fit': function: fit is an async function, which the ranks do not await; define it"
            " with def, and call asyncio.run inside fit"
        )

    def test_a_generator_is_an_error(self) -> None:
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match="generator") as raised:

            @task.distributed_train(num_nodes=2, image="train:1")
            def fit() -> Iterator[int]:
                yield 1

        assert without_line(raised.value) == (
            "DAG 'nightly', task 'fit': function: fit is a generator, which the ranks do not iterate over; return a"
            " value instead of yielding it"
        )


class TestArguments:
    """The arguments of the call are sent to the ranks as JSON."""

    @pytest.mark.parametrize("maps", [False, True])
    def test_that_are_not_json_are_an_error_with_their_position(self, maps: bool) -> None:
        with DAG("nightly", schedule=None), pytest.raises(ValueError, match="JSON") as raised:

            @task.distributed_train(num_nodes=2, image="train:1")
            def fit(data: Any, lr: float) -> None: ...

            fit.partial(data={"when": [object()]}).expand(lr=[0.1]) if maps else fit({"when": [object()]}, lr=0.1)
        assert str(raised.value) == (
            f"DAG 'nightly', task 'fit': {'argument data' if maps else 'args[0]'}.when[0]: a value of type object is"
            " not JSON; give text, numbers, lists and mappings of them, or write it to a file and give the path"
        )

    def test_that_are_not_known_yet_are_accepted(self) -> None:
        with DAG("nightly", schedule=None, params={"lr": 0.1}) as dag:

            @task
            def prepare() -> float:
                return 0.1

            @task.distributed_train(num_nodes=2, image="train:1")
            def fit(*values: Any, lr: Any = 0.1) -> None: ...

            fit(prepare(), [{"of": (prepare(), 1)}], "{{ params.lr }}", dag.param("lr"), lr=prepare())
