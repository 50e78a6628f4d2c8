"""A table of the parameters of KubernetesPodOperator and KubernetesJobOperator, with a replacement for each parameter.

The parameters come from apache-airflow-providers-cncf-kubernetes 10.25.0. The table also contains the parameters of
BaseOperator that have no effect on a training. Error messages and docs/airflow-kpo.md are created from this table.
tests/airflow/test_kpo_parameters.py compares the table with the constructors of the operators.
"""

from __future__ import annotations

from dataclasses import dataclass

POD, JOB, BASE = "KubernetesPodOperator", "KubernetesJobOperator", "BaseOperator"


@dataclass(frozen=True)
class KpoParameter:
    """A parameter of KubernetesPodOperator, KubernetesJobOperator or BaseOperator.

    Args:
        name: the name of the parameter.
        example: an argument of DistributedTrainOperator with the same effect, as Python source code. Empty if no
            argument has the same effect.
        note: further information, as a part of a sentence. If `example` is empty, the note states what to do.
        unchanged: whether DistributedTrainOperator has a parameter with the same name and meaning.
        operator: the operator that defines the parameter.
        path: where DistributedTrainOperator accepts the same value. The first element is the name of a parameter. The
            other elements are keys in the value of this parameter. Empty if DistributedTrainOperator needs the value in
            another form.
    """

    name: str
    example: str = ""
    note: str = ""
    unchanged: bool = False
    operator: str = POD
    path: tuple[str, ...] = ()

    @property
    def equivalents(self) -> tuple[str, ...]:
        """The names of the parameters of DistributedTrainOperator in `example`."""
        return (self.example.partition("=")[0],) if self.example else ()

    def error(self) -> str:
        """Returns the error message for a user who gives the parameter to DistributedTrainOperator."""
        if not self.example:
            return f"a parameter of {self.operator} that does not exist here; {self.note}"
        note = self.note.partition(";")[0]  # docs/airflow-kpo.md contains the whole note
        return f"a parameter of {self.operator}; write for example {self.example}{f': {note}' if note else ''}"

    def error_in_sensor(self) -> str:
        """Returns the error message for a user who gives the parameter to DistributedTrainSensor."""
        return (
            f"a parameter of {self.operator}; a sensor only waits for a run that another program started: remove it,"
            " and set it where the run is started"
        )


def _same(name: str, note: str = "") -> KpoParameter:
    return KpoParameter(name, note=note, unchanged=True)


def _renamed(name: str, example: str, note: str = "", operator: str = POD) -> KpoParameter:
    """Returns an entry for a parameter that has the same values but another name in DistributedTrainOperator."""
    return KpoParameter(name, example, note, operator=operator, path=(example.partition("=")[0],))


def _key(name: str, parameter: str, fields: str, note: str = "", operator: str = POD) -> KpoParameter:
    """Returns an entry for a parameter of KubernetesPodOperator or KubernetesJobOperator.

    In DistributedTrainOperator, the same values are specified under a key of a mapping. The argument `parameter` is the
    name of the parameter that accepts this mapping.
    """
    return KpoParameter(
        name, f"{parameter}={{{fields}}}", note, operator=operator, path=(parameter, fields.split('"')[1])
    )


def _template(name: str, fields: str, note: str = "") -> KpoParameter:
    return _key(name, "pod_template", fields, note)


def _node(name: str, fields: str, note: str = "") -> KpoParameter:
    example = f'pod_template={{"containers": [{{"name": "node", {fields}}}]}}'
    return KpoParameter(name, example, note, path=("pod_template", "containers", fields.split('"')[1]))


_LOGS = "remove this parameter; the task log always shows the lines of the ranks in log_ranks"
_ROWS = (
    # The cluster.
    _same("kubernetes_conn_id"),
    _same("in_cluster"),
    _same("cluster_context"),
    _same("config_file"),
    _same("namespace"),
    # The pods and their container.
    _same("image"),
    _same("name", "the name of the job, a DNS-1035 label; the name of the run is derived from the task"),
    KpoParameter("random_name_suffix", note="remove this parameter; each run has a unique name"),
    KpoParameter(
        "cmds",
        'script="train.py"',
        "torchrun starts the script; module=, or a command= that starts torchrun, is also possible;"
        " num_nodes= replaces --nnodes of a launcher; procs_per_node= replaces --nproc-per-node",
    ),
    _renamed("arguments", 'args=["--epochs", "3"]'),
    KpoParameter("env_vars", 'env={"LR": "0.1"}', "a mapping instead of a list of V1EnvVar"),
    KpoParameter(
        "secrets",
        'env={"TOKEN": {"secret": "hub", "key": "token"}}',
        "a Secret that is mounted as files becomes volumes and volumeMounts of pod_template",
    ),
    KpoParameter("pod_runtime_info_envs", 'env={"POD_IP": {"field": "status.podIP"}}'),
    _node("env_from", '"envFrom": [{"secretRef": {"name": "hub"}}]'),
    KpoParameter(
        "configmaps",
        'pod_template={"containers": [{"name": "node", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}',
    ),
    KpoParameter(
        "container_resources",
        'resources_per_node={"cpu": 8, "memory": "64Gi", "gpus": 2}',
        "requests and limits may be separate: {'requests': {...}, 'limits': {...}}",
    ),
    KpoParameter(
        "volumes",
        'storage=[{"path": "/data", "claim": "datasets"}]',
        "for PersistentVolumeClaims; for other volumes, use volumes of pod_template",
    ),
    KpoParameter(
        "volume_mounts",
        'storage=[{"path": "/data", "claim": "datasets"}]',
        "for PersistentVolumeClaims; for other mounts, use volumeMounts of the container node in pod_template",
    ),
    _node("ports", '"ports": [{"containerPort": 8080}]', "the ports of the ranks need no declaration"),
    _key("node_selector", "scheduling", '"node_selector": {"pool": "gpu"}'),
    _key(
        "tolerations",
        "scheduling",
        '"tolerations": [{"key": "gpu", "operator": "Exists"}]',
        "mappings, not V1Toleration",
    ),
    _key(
        "affinity",
        "scheduling",
        '"affinity": {"nodeAffinity": {}}',
        "a mapping, not V1Affinity; scheduling.topology places pods near each other",
    ),
    _key("priority_class_name", "scheduling", '"priority_class": "high"'),
    _template("schedulername", '"schedulerName": "my-scheduler"', "scheduling.gang selects a gang scheduler"),
    _renamed("service_account_name", 'service_account="trainer"'),
    _template(
        "automount_service_account_token",
        '"automountServiceAccountToken": True',
        "pods have no token unless service_account names an account",
    ),
    _template("image_pull_secrets", '"imagePullSecrets": [{"name": "registry"}]'),
    _node("image_pull_policy", '"imagePullPolicy": "Always"'),
    _template(
        "security_context",
        '"securityContext": {"runAsUser": 1000}',
        'security="restricted" sets the fields that Pod Security requires',
    ),
    _node("container_security_context", '"securityContext": {"readOnlyRootFilesystem": True}'),
    _template("runtime_class_name", '"runtimeClassName": "nvidia"'),
    _template("hostnetwork", '"hostNetwork": True'),
    _template("host_aliases", '"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["data"]}]'),
    _template("dnspolicy", '"dnsPolicy": "ClusterFirst"'),
    _template("dns_config", '"dnsConfig": {"searches": ["example.com"]}'),
    KpoParameter("hostname", note="remove this parameter; stepset sets the host names of the pods"),
    _key("subdomain", "network", '"subdomain": "train"'),
    _template("init_containers", '"initContainers": [{"name": "fetch", "image": "fetch:1"}]'),
    KpoParameter(
        "full_pod_spec",
        'pod_template={"spec": {"nodeName": "gpu-0"}}',
        "a mapping with the fields for which there is no parameter here; stepset merges this mapping into its pods",
    ),
    KpoParameter(
        "pod_template_dict",
        'pod_template={"spec": {"nodeName": "gpu-0"}}',
        "stepset merges this mapping into its pods",
    ),
    KpoParameter(
        "pod_template_file",
        'pod_template={"spec": {"nodeName": "gpu-0"}}',
        "a mapping, not a file; load the file in the DAG, or write it into a job file (job=)",
    ),
    KpoParameter("base_container_name", note="remove this parameter; the container of the ranks is called node"),
    _node("termination_message_policy", '"terminationMessagePolicy": "File"', "the default is FallbackToLogsOnError"),
    _same("labels"),
    _same("annotations"),
    # Time limits.
    _renamed(
        "startup_timeout_seconds",
        "startup_timeout=1800",
        "the maximum number of seconds until all pods run; the default is 1800 (30 minutes)",
    ),
    _renamed("schedule_timeout_seconds", "startup_timeout=1800", "admission_timeout limits the time in a queue"),
    _renamed("active_deadline_seconds", 'deadline="12h"'),
    _same("termination_grace_period", "the ranks have 10 s less, because stepset then reports how they ended"),
    KpoParameter("startup_check_interval_seconds", note="remove this parameter; a watch reports changes at once"),
    KpoParameter(
        "base_container_status_polling_interval", note="remove this parameter; a watch reports changes at once"
    ),
    _same("poll_interval", "the number of seconds between two checks of the time limits"),
    # Logs, results and the end of a task.
    KpoParameter("get_logs", note=f'{_LOGS} (with log_ranks="failed", only the last lines of a failed rank)'),
    KpoParameter("container_logs", 'log_ranks="all"', "this also shows the lines of launchers and roles"),
    KpoParameter("init_container_logs", note="to see the log lines of an init container, run the container as a role"),
    KpoParameter("logging_interval", note=_LOGS),
    KpoParameter("container_name_log_prefix_enabled", note="remove this parameter; each line has its rank as a prefix"),
    KpoParameter("log_formatter", note="remove this parameter; format the lines in the training code"),
    KpoParameter(
        "log_events_on_failure", note="remove this parameter; the diagnosis of a failure contains the relevant events"
    ),
    KpoParameter("log_events_on_startup", note="remove this parameter; the log states why a run does not start"),
    KpoParameter("log_pod_spec_on_failure", note="remove this parameter; stepset render JOB.yaml prints the manifests"),
    _same(
        "do_xcom_push",
        "the default is True; the XCom is the JSON that rank 0 writes to $STEPSET_RESULT_FILE",
    ),
    KpoParameter("xcom_sidecar_container_security_context", note="remove this parameter; the result needs no sidecar"),
    KpoParameter("skip_on_exit_code", 'exit_code_policy={42: "skip"}'),
    KpoParameter(
        "on_finish_action",
        'on_finish_action="delete"',
        "delete replaces delete_pod; keep and delete_succeeded are also possible",
    ),
    KpoParameter(
        "on_kill_action", 'on_kill_action="delete"', "delete replaces delete_pod; suspend and keep are also possible"
    ),
    KpoParameter("is_delete_operator_pod", 'on_finish_action="delete"', "keep and delete_succeeded are also possible"),
    KpoParameter("callbacks", 'callbacks="my_package.hooks.on_change"', "a dotted path of a function, not of a class"),
    KpoParameter(
        "progress_callback",
        'callbacks="my_package.hooks.on_change"',
        "a function that receives the run's status at every change",
    ),
    # How a task waits.
    _same("deferrable"),
    _same("durable"),
    _renamed("reattach_on_restart", "durable=True"),
    KpoParameter("trigger_kwargs", note="remove this parameter; the trigger receives the parameters of the task"),
    # KubernetesJobOperator.
    _renamed("parallelism", "num_nodes=4", operator=JOB),
    _renamed("completions", "num_nodes=4", operator=JOB),
    _key("backoff_limit", "restart", '"max_restarts": 3', "each restart restarts all pods", operator=JOB),
    KpoParameter("completion_mode", note="remove this parameter; each pod has an index", operator=JOB),
    KpoParameter("manual_selector", note="remove this parameter; the cluster selects the pods of a run", operator=JOB),
    KpoParameter("selector", note="remove this parameter; the cluster selects the pods of a run", operator=JOB),
    KpoParameter("suspend", 'queue_name="team-a"', "the run waits until the queue admits the run", operator=JOB),
    _renamed("ttl_seconds_after_finished", 'ttl="1d"', operator=JOB),
    _renamed("wait_until_job_complete", "wait_for_completion=True", "this is the default", operator=JOB),
    _renamed("job_poll_interval", "poll_interval=10", operator=JOB),
    KpoParameter(
        "job_template_file",
        'job="job.yaml"',
        "a job file of stepset; target= selects the kind of the Kubernetes object",
        operator=JOB,
    ),
    KpoParameter(
        "full_job_spec",
        'job={"script": "train.py"}',
        "a job of stepset; target= selects the kind of the Kubernetes object",
        operator=JOB,
    ),
    KpoParameter("on_kill_propagation_policy", 'on_kill_action="delete"', "this also deletes the pods", operator=JOB),
    KpoParameter("discover_pods_retry_number", note="remove this parameter; a watch reports all pods", operator=JOB),
    KpoParameter("unwrap_single", note="remove this parameter; rank 0 writes one result", operator=JOB),
    # BaseOperator.
    _renamed(
        "resources",
        'resources_per_node={"cpu": 8, "memory": "64Gi", "gpus": 2}',
        "Airflow does not pass resources= to the pods",
        operator=BASE,
    ),
)

KPO_PARAMETERS = {row.name: row for row in _ROWS}
"""The parameters by their names, in the order in which docs/airflow-kpo.md lists them."""
