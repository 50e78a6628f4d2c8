"""The component `distributed_train`. Pipelines create its tasks with the function `stepset_kfp.distributed_train`.

This module does not use `from __future__ import annotations`, because KFP needs annotations as objects, not as text.
The module imports only kfp at the top level. Therefore the folder can be copied to kubeflow/pipelines-components.
"""

import os

from kfp import dsl

# The image is built from deploy/kfp/Containerfile. Its tag contains the version of stepset and is part of KFP's cache
# key. Therefore a newer version does not reuse outputs of an older version. The name contains `python`, because KFP's
# local runner logs a warning about other names.
IMAGE = os.environ.get("STEPSET_KFP_IMAGE") or "stepset/kfp-python:0.1.0"

# The settings of a task that apply to the training pods. If a pipeline uses another setting, its compilation fails. The
# variables and volumes also apply to the step, because the step may have to read files that the training has written.
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
    files: dsl.Input[dsl.Artifact] = None,
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
    packed_code: str = "",
    encoded_inputs: dict = {},
    requirements: list = [],
    env: dict = {},
    resources_per_node: dict = {},
    shm: str = "",
    storage: list = [],
    checkpoint_dir: str = "",
    roles: list = [],
    restart: dict = {},
    hang: str = "",
    deadline: str = "",
    termination_grace_period: str = "",
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
    on_orphan: str = "",
    admission_timeout: int = 0,
    startup_timeout: int = 1800,
    task_config: dsl.TaskConfig = None,
):
    """Runs a distributed training to its end; fails if the training fails.

    Args:
        model: a copy of the model, or only its location. This location is `model` or `checkpoint` in `result`.
        metrics: the numbers of the result and of the last progress line.
        report: ranks, phases, loss curve and diagnosis.
        result: the result that rank 0 wrote to STEPSET_RESULT_FILE.
        run: the run's name.
        files: archive (tar.gz) with a large script or code. stepset_kfp.distributed_train sets this input.
        job: content of a job file, as a mapping. If an input has the same name as a field, the input takes precedence.
        name: the job's name. Most inputs from `name` to `agent` are fields of the job file. Empty inputs are ignored.
        framework: the kind of a framework, or a JSON mapping with the kind and the options of the framework.
        num_nodes: number of pods in the training world. -1 means that the input is not given.
        procs_per_node: number of processes on each node, or auto, cpu or gpu.
        image: the training pods' image; not needed locally.
        script: Python file to run; stepset_kfp.distributed_train packs this file.
        module: Python module to run.
        command: program to run and its arguments.
        function: source text of a Python program.
        args: arguments of script, module or command.
        code: directory with the code; stepset_kfp.distributed_train packs this directory.
        packed_code: archive (tar.gz, Base64) with the script or code. stepset_kfp.distributed_train sets this input.
        encoded_inputs: inputs with run-time values or special characters; set by stepset_kfp.distributed_train.
        requirements: Python packages (PEP 508) that uv installs before the ranks start.
        env: variables for every process.
        resources_per_node: resources of each pod; default: the resources set on the task.
        shm: size of /dev/shm; default: as much as the pod's memory allows.
        storage: PersistentVolumeClaims mounted in every pod.
        checkpoint_dir: directory that persists after the run; if it contains checkpoints, the training continues.
        roles: pods outside of the training world.
        restart: how often all ranks may be restarted together, and the failures after which they are restarted.
        hang: off, or {after: 5m, first: 30m, action: report}: when hung ranks are reported, and what happens then.
        deadline: maximum duration, such as 12h; the run fails when it takes longer.
        termination_grace_period: time after which a stopped pod is killed, such as 2m; default 60s.
        ttl: time from the run's end until its objects are deleted, such as 1d.
        scheduling: placement, queue and gang scheduling of the pods.
        queue_name: shorthand for scheduling.queue_name.
        network: ports and DNS names with which the ranks connect to each other.
        service_account: service account of the training pods.
        security: `restricted` if the training pods must meet this Pod Security level. If empty, no level is required.
        labels: labels of every object of the run.
        annotations: annotations of every object of the run.
        pod_template: fields of a pod, merged over every training pod.
        agent: whether stepset's agent wraps the command: auto, true or false.
        backend: auto, local or kubernetes. auto means kubernetes if the step runs in a pod, and local otherwise.
        target: kind of the run on a cluster: jobset, trainjob, statefulset, job or volcano.
        namespace: namespace of the run; default: the step's.
        log_ranks: ranks whose lines the step logs: all, failed, or ranks such as 0,1.
        on_interrupt: what happens to the run when the step is terminated: suspend, delete or leave.
        on_orphan: stop or keep the run if its step ends and is not retried. Default: stop (keep if on_interrupt=leave).
        admission_timeout: maximum seconds in a queue; 0: no limit.
        startup_timeout: maximum seconds from admission until all pods run; 0: no limit.
        task_config: set by KFP.
    """
    given = dict(locals())

    from stepset_kfp.step.train import train

    train(given)
