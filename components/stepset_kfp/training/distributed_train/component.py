"""The component `distributed_train`. Its body runs in the step; pipelines use `stepset_kfp.distributed_train`.

No `from __future__ import annotations` here: KFP needs annotations as objects, not text. The module imports only kfp,
so that the folder can be copied to kubeflow/pipelines-components.
"""

import os

from kfp import dsl

# Built from deploy/kfp/Containerfile. The tag contains the version and is part of KFP's cache key, so a newer stepset
# does not reuse outputs of an older one. KFP's local runner warns about image names that do not contain `python`.
IMAGE = os.environ.get("STEPSET_KFP_IMAGE") or "stepset/kfp-python:0.1.0"

# The settings of a task that apply to the training pods; setting another one is a compile error. Variables and volumes
# also apply to the step, which may have to read files that the training wrote.
PASSTHROUGHS = [
    dsl.TaskConfigField.RESOURCES,
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.ENV, apply_to_task=True),
    dsl.TaskConfigField.KUBERNETES_AFFINITY,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.KUBERNETES_VOLUMES, apply_to_task=True),
]


@dsl.component(base_image=IMAGE, install_kfp_package=False, task_config_passthroughs=PASSTHROUGHS)
def distributed_train(
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    result: dsl.OutputPath(dict),
    run: dsl.OutputPath(str),
    job: dict = {},
    name: str = "",
    framework: str = "",
    num_nodes: int = -1,
    procs_per_node: str = "",
    image: str = "",
    script: str = "",
    module: str = "",
    command: list = [],
    function: str = "",
    args: list = [],
    code: str = "",
    packed: str = "",
    env: dict = {},
    resources_per_node: dict = {},
    shm: str = "",
    storage: list = [],
    checkpoint_dir: str = "",
    roles: list = [],
    restart: dict = {},
    deadline: str = "",
    ttl: str = "",
    scheduling: dict = {},
    queue_name: str = "",
    network: dict = {},
    service_account: str = "",
    security: str = "",
    labels: dict = {},
    annotations: dict = {},
    pod_template: dict = {},
    agent: str = "",
    backend: str = "auto",
    target: str = "jobset",
    namespace: str = "",
    log_ranks: str = "0",
    on_interrupt: str = "suspend",
    admission_timeout: int = 0,
    startup_timeout: int = 1800,
    task_config: dsl.TaskConfig = None,
):
    """Runs a distributed training to its end; fails if the training fails.

    Args:
        model: the model that rank 0's result names as `model` or `checkpoint`: a copy, or a reference.
        metrics: the numbers of the result and of the last progress line.
        report: ranks, phases, loss curve and diagnosis.
        result: the result that rank 0 wrote to STEPSET_RESULT_FILE.
        run: the run's name.
        job: a job file's mapping; inputs with the name of a field replace the field.
        name: the job's name. This and the inputs up to `agent` are fields of the job file (docs/job-file.md), except
            packed, shm and queue_name; empty: not given.
        framework: a kind, or a JSON mapping with its options.
        num_nodes: number of pods in the training world; -1: not given.
        procs_per_node: number of processes on each node, or auto, cpu or gpu.
        image: the training pods' image; not needed locally.
        script: Python file to run; stepset_kfp.distributed_train packs it.
        module: Python module to run.
        command: program to run and its arguments.
        function: source text of a Python program.
        args: arguments of script, module or command.
        code: directory with the code; stepset_kfp.distributed_train packs it.
        packed: the packed files; set by stepset_kfp.distributed_train.
        env: variables for every process.
        resources_per_node: resources of each pod; default: the resources set on the task.
        shm: size of /dev/shm; default: as much as the pod's memory allows.
        storage: PersistentVolumeClaims mounted in every pod.
        checkpoint_dir: directory that persists after the run; if it contains checkpoints, the training continues.
        roles: pods outside of the training world.
        restart: how often the gang is restarted.
        deadline: maximum duration, such as 12h; the run fails when it takes longer.
        ttl: time from the run's end until its objects are deleted, such as 1d.
        scheduling: nodes, queue, gang.
        queue_name: shorthand for scheduling.queue_name.
        network: ports and names.
        service_account: service account of the training pods.
        security: `restricted` renders training pods that the Pod Security level `restricted` admits; empty: not given.
        labels: labels of every object of the run.
        annotations: annotations of every object of the run.
        pod_template: fields of a pod, merged over every training pod.
        agent: whether stepset's agent wraps the command: auto, true or false.
        backend: auto (the cluster in a step's pod, else this machine), local or kubernetes.
        target: kind of the run on a cluster: jobset, trainjob, statefulset, job or volcano.
        namespace: namespace of the run; default: the step's.
        log_ranks: ranks whose lines the step logs: all, failed, or ranks such as 0,1.
        on_interrupt: what happens to the run when the step is terminated: suspend, delete or leave.
        admission_timeout: maximum seconds in a queue; 0: no limit.
        startup_timeout: maximum seconds from admission until all pods run; 0: no limit.
        task_config: set by KFP.
    """
    given = dict(locals())

    from stepset_kfp.step.train import train

    train(given)
