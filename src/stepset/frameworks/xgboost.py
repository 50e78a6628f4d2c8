"""XGBoost: a tracker on node 0, workers everywhere.

Source: Kubeflow Trainer v2.3.0 pkg/runtime/framework/plugins/xgboost/xgboost.go. XGBoost reads none of these by itself;
the script passes them to its CommunicatorContext (docs/frameworks/xgboost.md).
"""

from __future__ import annotations

from stepset.frameworks.common import (
    MASTER,
    MASTER_HOST,
    count_processes,
    node_group,
    program,
    single_group_plan,
    uses_agent,
)
from stepset.plan.model import EnvEntry, LaunchPlan
from stepset.plan.values import NodeRank, PortNumber, ProcessRank, text
from stepset.spec.job import TrainingJob


def plan(job: TrainingJob) -> LaunchPlan:
    """The plan of an XGBoost job: a worker for every accelerator, one on a node without."""
    workers = count_processes(job, without_accelerator=1)
    # Without the agent the job's own command starts a node's workers and derives their ranks from the node's rank.
    started = workers if uses_agent(job) else 1
    task_id = text(ProcessRank()) if started > 1 else text(NodeRank())
    env = (
        EnvEntry("DMLC_TRACKER_URI", text(MASTER_HOST), "xgboost: the tracker runs on node 0"),
        EnvEntry("DMLC_TRACKER_PORT", text(PortNumber(MASTER)), "xgboost: network.port"),
        EnvEntry("DMLC_TASK_ID", task_id, "xgboost: rank of the worker", pod_value=text(NodeRank())),
        EnvEntry("DMLC_NUM_WORKER", text(job.num_nodes * workers), "xgboost: num_nodes x workers per node"),
    )
    node = node_group(job, env, program(job), processes=started, world_size=job.num_nodes * workers)
    return single_group_plan(job, node, workers)
