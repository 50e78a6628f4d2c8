"""XGBoost: a tracker on node 0, workers everywhere.

Source: Kubeflow Trainer v2.3.0 pkg/runtime/framework/plugins/xgboost/xgboost.go. XGBoost itself reads none of these
variables; the script passes them to its CommunicatorContext (docs/frameworks/xgboost.md).
"""

from __future__ import annotations

from stepset.frameworks.common import (
    MASTER,
    MASTER_HOST,
    count_processes,
    device_notes,
    node_group,
    program,
    single_group_plan,
    uses_agent,
)
from stepset.plan.model import EnvEntry, LaunchPlan
from stepset.plan.values import LocalRank, NodeRank, OwnDeviceFirst, PortNumber, ProcessRank, text
from stepset.spec.devices import node_devices
from stepset.spec.job import TrainingJob


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of an XGBoost job: one worker per accelerator; on nodes without accelerators, one per node."""
    workers = count_processes(job, without_accelerator=1)
    # Without the agent the job's own command starts a node's workers and derives their ranks from the node's rank.
    started = workers if uses_agent(job) else 1
    task_id = text(ProcessRank()) if started > 1 else text(NodeRank())
    env = (
        EnvEntry("DMLC_TRACKER_URI", text(MASTER_HOST), "xgboost: the tracker runs on node 0"),
        EnvEntry("DMLC_TRACKER_PORT", text(PortNumber(MASTER)), "xgboost: network.port"),
        EnvEntry("DMLC_TASK_ID", task_id, "xgboost: rank of the worker", pod_value=text(NodeRank())),
        EnvEntry("DMLC_NUM_WORKER", text(job.num_nodes * workers), "xgboost: num_nodes x workers per node"),
        *(_process_env(job, workers) if uses_agent(job) else ()),
    )
    node = node_group(job, env, program(job), processes=started, world_size=job.num_nodes * workers)
    return single_group_plan(job, node, workers, notes=device_notes(job, selects_mig=started > 1))


def _process_env(job: TrainingJob, workers: int) -> tuple[EnvEntry, ...]:
    """The variables that the agent sets for each worker; pods have the variables of Kubeflow Trainer only.

    XGBoost uses device 0 for `device="cuda"`, and its collective refuses two workers on one device (dmlc/xgboost 3.3
    src/collective/comm.cu). Therefore each worker sees the devices of the pod in an order of its own, as in XGBoost's
    example of several workers per node (demo/guide-python/distributed_extmem_basic.py). It sees all of them, because
    NCCL needs the others for direct transfers between them.
    """
    index = EnvEntry("LOCAL_RANK", text(LocalRank()), "xgboost: index of the worker within the pod")
    if workers == 1:
        return (index,)
    rule = "xgboost: the pod's devices, that of the worker first, because XGBoost uses the first"
    return (index, EnvEntry("CUDA_VISIBLE_DEVICES", text(OwnDeviceFirst(_indexes(job))), rule, from_pod=True))


def _indexes(job: TrainingJob) -> str:
    """The indexes of the pod's CUDA devices; "" if there are none, or if indexes do not name them, as for MIG."""
    devices = node_devices(job)
    names_devices = devices.counted_by_torchrun and not devices.name.startswith("gpu.intel.com/")
    return ",".join(str(index) for index in range(devices.count)) if names_devices else ""
