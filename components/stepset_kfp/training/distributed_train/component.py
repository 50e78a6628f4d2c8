"""The component `distributed_train`. Its body runs in the step; pipelines use `stepset_kfp.distributed_train`.

No `from __future__ import annotations` here: KFP reads the annotations themselves. And no import but kfp, as in
kubeflow/pipelines-components, where a copy of this folder is a component too.
"""

import os

from kfp import dsl

# Built from deploy/kfp/Containerfile. The version is in the tag, and the tag in KFP's cache key: a newer stepset finds
# no older one's outputs. The name holds `python`, because KFP's local runner warns of images whose name does not.
IMAGE = os.environ.get("STEPSET_KFP_IMAGE") or "stepset/kfp-python:0.1.0"

# Which of a task's settings go to the training pods. One that is not listed would be a compile error. Variables and
# volumes reach the step too: it may have to read what the training wrote.
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
    """Runs a distributed training and waits for it; fails when it fails.

    Args:
        model: what rank 0's result names as `model` or `checkpoint`: a copy, or a reference.
        metrics: the numbers of the result and of the last progress line.
        report: ranks, phases, loss curve and diagnosis.
        result: what rank 0 wrote to STEPSET_RESULT_FILE.
        run: the run's name.
        job: a job file's mapping; the inputs of the job file's names replace its fields.
        name: a field of the job file, as those below up to `agent` (docs/job-file.md); empty: not given.
        framework: a kind, or a JSON mapping with its options.
        num_nodes: pods that join the training world; -1: not given.
        procs_per_node: processes a node runs: a number, or auto.
        image: the training pods' image; not needed locally.
        script: Python file to run; the factory packs it.
        module: Python module to run.
        command: command to run as it is.
        function: source text of a Python program.
        args: arguments of script, module or command.
        code: directory shipped along; the factory packs it.
        packed: the files that the factory packed.
        env: variables for every process.
        resources_per_node: what each pod asks for; default: what is set on the task.
        shm: size of /dev/shm; default: as much as the pod's memory allows.
        storage: PersistentVolumeClaims mounted in every pod.
        checkpoint_dir: directory that outlives the run.
        roles: pods beside the world.
        restart: how often the gang is started again.
        deadline: the run fails when it takes longer, such as 12h.
        ttl: the run's objects are deleted this long after its end.
        scheduling: nodes, queue, gang.
        queue_name: short for scheduling.queue_name.
        network: ports and names.
        service_account: of the training pods.
        labels: of every object of the run.
        annotations: of every object of the run.
        pod_template: merged over every training pod.
        agent: auto, true or false.
        backend: auto (the cluster in a step's pod, else this machine), local or kubernetes.
        target: what the run becomes on a cluster: jobset, trainjob, statefulset, job or volcano.
        namespace: where the run is; default: the step's.
        log_ranks: whose lines go to the step's log: all, failed, or ranks such as 0,1.
        on_interrupt: suspend, delete or leave: what becomes of the run when the step is told to end.
        admission_timeout: seconds the run may wait in a queue; 0: for ever.
        startup_timeout: seconds from there until all of it runs; 0: for ever.
        task_config: set by KFP.
    """
    given = dict(locals())

    from stepset_kfp.step.train import train

    train(given)
