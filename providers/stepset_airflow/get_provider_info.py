"""Describes this provider to Airflow. Every Airflow process calls it through its entry point, so it imports nothing."""

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
        "extra-links": [
            "stepset_airflow.links.TrainingLink",
            "stepset_airflow.links.WorkloadLink",
            "stepset_airflow.links.FailedRankLink",
        ],
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
                    "run_url": {
                        "description": "Where a dashboard of yours shows a run's object: {namespace}, {run} and"
                        " {target} are filled in. Makes the link Workload.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "https://headlamp.example/c/main/customresources/jobsets.jobset.x-k8s.io"
                        "/{namespace}/{run}",
                        "default": "",
                    },
                    "logs_url": {
                        "description": "Where logs of pods are kept: {namespace}, {run}, {pod} and {rank} are filled"
                        " in with who failed first. Makes the link Log of the failed rank.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "https://logs.example/?namespace={namespace}&pod={pod}",
                        "default": "",
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
