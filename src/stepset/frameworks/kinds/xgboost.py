"""Plans XGBoost jobs. Node 0 runs the tracker, and every node runs workers.

Source: Kubeflow Trainer v2.3.0 pkg/runtime/framework/plugins/xgboost/xgboost.go. XGBoost does not read the DMLC_*
variables. The script must pass their values to XGBoost's `CommunicatorContext` (docs/frameworks/xgboost.md).
"""

from __future__ import annotations

from stepset.errors import BadInputError
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
from stepset.frameworks.framework_spec import FrameworkSpec, Import, Listeners
from stepset.plan.model import MAX_PROCESSES, EnvEntry, LaunchPlan
from stepset.plan.values import LocalRank, NodeRank, OwnDeviceFirst, PortNumber, ProcessRank, text
from stepset.spec.devices import node_devices
from stepset.spec.job import TrainingJob


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of an XGBoost job.

    By default, a node runs one worker for each accelerator. A node without accelerators runs one worker. Only the agent
    can start several workers. The tracker waits for all workers, so a job that starts fewer would never begin.
    """
    workers = count_processes(job, without_accelerator=1)
    task_id = text(ProcessRank()) if workers > 1 else text(NodeRank())
    env = (
        EnvEntry("DMLC_TRACKER_URI", text(MASTER_HOST), "xgboost: the tracker runs on node 0"),
        EnvEntry("DMLC_TRACKER_PORT", text(PortNumber(MASTER)), "xgboost: network.port"),
        EnvEntry("DMLC_TASK_ID", task_id, "xgboost: rank of the worker", pod_value=text(NodeRank())),
        EnvEntry("DMLC_NUM_WORKER", text(job.num_nodes * workers), "xgboost: num_nodes x workers per node"),
        *(_process_env(job, workers) if uses_agent(job) else ()),
    )
    node = node_group(job, env, program(job), processes=workers, world_size=job.num_nodes * workers)
    return single_group_plan(job, node, workers, notes=device_notes(job, selects_mig=True))


def _process_env(job: TrainingJob, workers: int) -> tuple[EnvEntry, ...]:
    """Returns the additional variables that the agent sets for each worker. Kubeflow Trainer does not set them.

    With `device="cuda"`, XGBoost uses device 0, but two workers must not use the same device (dmlc/xgboost 3.3
    src/collective/comm.cu). Therefore each worker gets the devices of the pod in a different order, as in XGBoost's
    example (demo/guide-python/distributed_extmem_basic.py). A worker must have access to all devices of the pod,
    because NCCL needs the other devices for direct transfers.
    """
    index = EnvEntry("LOCAL_RANK", text(LocalRank()), "xgboost: index of the worker within the pod")
    if workers == 1:
        return (index,)
    rule = "xgboost: the pod's devices, that of the worker first, because XGBoost uses the first"
    return (index, EnvEntry("CUDA_VISIBLE_DEVICES", text(OwnDeviceFirst(_indexes(job))), rule, from_pod=True))


def _indexes(job: TrainingJob) -> str:
    """Returns the indexes of the pod's CUDA devices, in the form of CUDA_VISIBLE_DEVICES.

    If the pod has no CUDA devices, or if the devices have no indexes (MIG devices), the function returns "".

    Raises:
        BadInputError: no machine has so many devices. The number may be an amount of memory.
    """
    devices = node_devices(job)
    if devices.count > MAX_PROCESSES:
        raise BadInputError(
            f"resources_per_node: {devices.count} x {devices.name} are more than {MAX_PROCESSES} devices; give the"
            " number of devices of a node"
        )
    names_devices = devices.counted_by_torchrun and not devices.name.startswith("gpu.intel.com/")
    return ",".join(str(index) for index in range(devices.count)) if names_devices else ""


SPEC = FrameworkSpec(
    name="XGBoost",
    plan=plan,
    listeners=Listeners("", "the workers"),
    world_variables=(r"DMLC_",),
    programs={},
    packages=("xgboost",),
    imports=(Import("xgboost", "the script must join the tracker, as xgboost.collective.CommunicatorContext does"),),
    pages=("xgboost",),
)
