"""Describes the provider to Airflow. Every Airflow process imports this module, so the import must be fast."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Returns the provider's description, which conforms to airflow/provider_info.schema.json (Airflow 3.3)."""
    return {
        "package-name": "stepset",
        "name": "stepset",
        "description": "A distributed training run as one task.",
        "task-decorators": [
            {
                "name": "distributed_train",
                "class-name": "stepset_airflow.decorators.distributed_train.distributed_train_task",
            }
        ],
        "extra-links": [
            "stepset_airflow.links.training.TrainingLink",
            "stepset_airflow.links.training.WorkloadLink",
            "stepset_airflow.links.training.FailedRankLink",
        ],
        "config": {
            "stepset": {
                "description": "Defaults of DistributedTrainOperator and @task.distributed_train.",
                "options": {
                    "backend": _option(
                        "Where trainings of tasks without `backend` run: kubernetes or local.",
                        example="local",
                        default="kubernetes",
                    ),
                    "log_ranks": _option(
                        "Ranks whose lines are written to the log of tasks without `log_ranks`:"
                        " all, failed, or numbers separated by commas.",
                        example="all",
                        default="0",
                    ),
                    "run_url": _option(
                        "URL of a run's object in your dashboard; {namespace}, {run} and {target} are"
                        " filled in. Target of the link Workload.",
                        example="https://headlamp.example/c/main/customresources/jobsets.jobset.x-k8s.io"
                        "/{namespace}/{run}",
                    ),
                    "logs_url": _option(
                        "URL of a pod's log in your log store; {namespace}, {run}, {pod} and {rank} of"
                        " the first failure are filled in. Target of the link Log of the failed rank.",
                        example="https://logs.example/?namespace={namespace}&pod={pod}",
                    ),
                    "instance": _option(
                        "Name of this Airflow deployment, if several create runs in one namespace; the"
                        " same in each of its processes. A hash of it is part of the runs' names. Default: [api]"
                        " base_url.",
                        example="production",
                    ),
                },
            }
        },
    }


def _option(description: str, example: str, default: str = "") -> dict[str, str]:
    fields = {"description": description, "version_added": "0.1.0", "type": "string"}
    return {**fields, "example": example, "default": default}
