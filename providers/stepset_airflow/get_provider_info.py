"""What Airflow learns of this provider through its entry point. Every Airflow process calls it: it imports nothing."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """The provider's description, in the form of airflow/provider_info.schema.json (Airflow 3.3)."""
    return {
        "package-name": "stepset",
        "name": "stepset",
        "description": "A distributed training run as one task.",
        "task-decorators": [
            {"name": "distributed_train", "class-name": "stepset_airflow.decorators.distributed_train_task"}
        ],
        "extra-links": ["stepset_airflow.links.TrainingLink"],
        "config": {
            "stepset": {
                "description": "Defaults of DistributedTrainOperator and @task.distributed_train.",
                "options": {
                    "backend": {
                        "description": "Where a task that does not say so runs its training: kubernetes or local.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "local",
                        "default": "kubernetes",
                    },
                    "log_ranks": {
                        "description": "Ranks whose lines go to the task log where a task does not say so:"
                        " all, failed, or numbers separated by commas.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "all",
                        "default": "0",
                    },
                    "instance": {
                        "description": "Which Airflow this is, where several make runs in one namespace; the same in"
                        " each of its processes. Part of the runs' names. Default: [api] base_url.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "production",
                        "default": "",
                    },
                },
            }
        },
    }
