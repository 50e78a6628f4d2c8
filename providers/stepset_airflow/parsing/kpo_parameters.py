"""The parameters of KubernetesPodOperator and KubernetesJobOperator, and what to write instead of each.

Read in apache-airflow-providers-cncf-kubernetes 10.25.0. Error messages and docs/airflow-kpo.md are made from this
table; tests/airflow/test_kpo_parameters.py compares it with the constructors.
"""

from __future__ import annotations

from dataclasses import dataclass

POD, JOB = "KubernetesPodOperator", "KubernetesJobOperator"


@dataclass(frozen=True)
class KpoParameter:
    """A parameter of KubernetesPodOperator.

    Args:
        name: its name there.
        example: arguments of DistributedTrainOperator with the same effect, in Python; empty if there are none.
        note: what else to know, or what to do if there is no example; part of a sentence.
        unchanged: whether DistributedTrainOperator has a parameter with the same name and meaning.
        operator: the operator that introduces it.
    """

    name: str
    example: str = ""
    note: str = ""
    unchanged: bool = False
    operator: str = POD

    def error(self) -> str:
        """Returns what is wrong and what to do if the parameter is given to our operator."""
        if not self.example:
            return f"a parameter of {self.operator} that does not exist here; {self.note}"
        return f"a parameter of {self.operator}; write {self.example}{f': {self.note}' if self.note else ''}"

    def error_in_sensor(self) -> str:
        """Returns what is wrong and what to do if the parameter is given to the sensor."""
        return (
            f"a parameter of {self.operator}; a sensor only waits for a run that another program started: remove it,"
            " and set it where the run is started"
        )


def _same(name: str, note: str = "") -> KpoParameter:
    return KpoParameter(name, note=note, unchanged=True)


def _template(name: str, fields: str, note: str = "") -> KpoParameter:
    return KpoParameter(name, f"pod_template={{{fields}}}", note)


def _node(name: str, fields: str, note: str = "") -> KpoParameter:
    return _template(name, f'"containers": [{{"name": "node", {fields}}}]', note)


_LOGS = "the task log shows the lines of the ranks that log_ranks selects as they are printed; remove it"
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
    KpoParameter("random_name_suffix", note="the name of a run is derived from the task and unique; remove it"),
    KpoParameter(
        "cmds",
        'script="train.py"',
        "which torchrun starts; or module=; or command= with torchrun, but without the flags that stepset sets",
    ),
    KpoParameter("arguments", 'args=["--epochs", "3"]'),
    KpoParameter("env_vars", 'env={"LR": "0.1"}', "a mapping instead of a list of V1EnvVar"),
    KpoParameter(
        "secrets",
        'env={"TOKEN": {"secret": "hub", "key": "token"}}',
        "mount a Secret as files with volumes and volumeMounts of pod_template",
    ),
    KpoParameter("pod_runtime_info_envs", 'env={"POD_IP": {"field": "status.podIP"}}'),
    _node("env_from", '"envFrom": [{"secretRef": {"name": "hub"}}]'),
    _node("configmaps", '"envFrom": [{"configMapRef": {"name": "settings"}}]'),
    KpoParameter(
        "container_resources",
        'resources_per_node={"cpu": 8, "memory": "64Gi", "gpus": 2}',
        "requests and limits may be separate: {'requests': {...}, 'limits': {...}}",
    ),
    KpoParameter(
        "volumes",
        'storage=[{"path": "/data", "claim": "datasets"}]',
        "for a PersistentVolumeClaim; other volumes: volumes of pod_template",
    ),
    KpoParameter(
        "volume_mounts",
        'storage=[{"path": "/data", "claim": "datasets"}]',
        "for a PersistentVolumeClaim; other mounts: volumeMounts of the container node in pod_template",
    ),
    _node("ports", '"ports": [{"containerPort": 8080}]', "the ranks' own ports need no entry"),
    KpoParameter("node_selector", 'scheduling={"node_selector": {"pool": "gpu"}}'),
    KpoParameter(
        "tolerations", 'scheduling={"tolerations": [{"key": "gpu", "operator": "Exists"}]}', "mappings, no V1Toleration"
    ),
    KpoParameter(
        "affinity",
        'scheduling={"affinity": {"nodeAffinity": {}}}',
        "a mapping, no V1Affinity; scheduling.topology places pods near each other",
    ),
    KpoParameter("priority_class_name", 'scheduling={"priority_class": "high"}'),
    _template("schedulername", '"schedulerName": "my-scheduler"', "scheduling.gang selects a gang scheduler"),
    KpoParameter("service_account_name", 'service_account="trainer"'),
    _template(
        "automount_service_account_token",
        '"automountServiceAccountToken": True',
        "pods have no token unless service_account names an account",
    ),
    _template("image_pull_secrets", '"imagePullSecrets": [{"name": "registry"}]'),
    _node("image_pull_policy", '"imagePullPolicy": "Always"'),
    _template("security_context", '"securityContext": {"runAsUser": 1000}', 'security="restricted" sets all of them'),
    _node("container_security_context", '"securityContext": {"readOnlyRootFilesystem": True}'),
    _template("runtime_class_name", '"runtimeClassName": "nvidia"'),
    _template("hostnetwork", '"hostNetwork": True'),
    _template("host_aliases", '"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["data"]}]'),
    _template("dnspolicy", '"dnsPolicy": "ClusterFirst"'),
    _template("dns_config", '"dnsConfig": {"searches": ["example.com"]}'),
    KpoParameter("hostname", note="ranks find each other by the host names that stepset sets; remove it"),
    KpoParameter("subdomain", 'network={"subdomain": "train"}'),
    _template("init_containers", '"initContainers": [{"name": "fetch", "image": "fetch:1"}]'),
    _template(
        "full_pod_spec",
        '"spec": {"nodeName": "gpu-0"}',
        "the parts without a parameter, as a mapping; it is merged over the pods that stepset makes",
    ),
    _template("pod_template_dict", '"spec": {"nodeName": "gpu-0"}', "it is merged over the pods that stepset makes"),
    KpoParameter(
        "pod_template_file",
        'pod_template={"spec": {"nodeName": "gpu-0"}}',
        "a mapping, no file; load the file in the DAG, or write it into a job file (job=)",
    ),
    KpoParameter("base_container_name", note="the container of the ranks is called node; remove it"),
    _node("termination_message_policy", '"terminationMessagePolicy": "File"', "by default FallbackToLogsOnError"),
    _same("labels"),
    _same("annotations"),
    # Time limits.
    KpoParameter("startup_timeout_seconds", "startup_timeout=1800", "seconds; 30 minutes by default, for all pods"),
    KpoParameter("schedule_timeout_seconds", "startup_timeout=1800", "admission_timeout limits the time in a queue"),
    KpoParameter("active_deadline_seconds", 'deadline="12h"'),
    _template("termination_grace_period", '"terminationGracePeriodSeconds": 60'),
    KpoParameter("startup_check_interval_seconds", note="a watch reports changes at once; remove it"),
    KpoParameter("base_container_status_polling_interval", note="a watch reports changes at once; remove it"),
    _same("poll_interval", "seconds between two checks of the time limits; a watch reports everything else"),
    # Logs, results and the end of a task.
    KpoParameter("get_logs", note=f'{_LOGS} (log_ranks="failed": none but the last lines of a failure)'),
    KpoParameter("container_logs", 'log_ranks="all"', "lines of launchers and roles are shown, too"),
    KpoParameter(
        "init_container_logs", note="a diagnosis names an init container that fails; use a role to show lines"
    ),
    KpoParameter("logging_interval", note=_LOGS),
    KpoParameter("container_name_log_prefix_enabled", note="each line has its rank as prefix; remove it"),
    KpoParameter("log_formatter", note="each line has its rank as prefix; format lines in the training code"),
    KpoParameter("log_events_on_failure", note="the diagnosis of a failure names the relevant events; remove it"),
    KpoParameter("log_events_on_startup", note="the log states why a run does not start; remove it"),
    KpoParameter("log_pod_spec_on_failure", note="stepset render JOB.yaml prints the manifests; remove it"),
    _same(
        "do_xcom_push", "by default True; the result is what rank 0 writes to $STEPSET_RESULT_FILE, without a sidecar"
    ),
    KpoParameter("xcom_sidecar_container_security_context", note="the result needs no sidecar; remove it"),
    KpoParameter("skip_on_exit_code", 'exit_code_policy={42: "skip"}'),
    KpoParameter("on_finish_action", 'on_finish_action="delete"', "instead of delete_pod; or keep, delete_succeeded"),
    KpoParameter("on_kill_action", 'on_kill_action="delete"', "instead of delete_pod; or suspend, keep"),
    KpoParameter("is_delete_operator_pod", 'on_finish_action="delete"', "or keep, delete_succeeded"),
    KpoParameter("callbacks", 'callbacks="my_package.hooks.on_change"', "a dotted path of a function, no class"),
    KpoParameter(
        "progress_callback",
        'callbacks="my_package.hooks.on_change"',
        "a function that receives the run's status at every change",
    ),
    # How a task waits.
    _same("deferrable"),
    _same("durable"),
    KpoParameter("reattach_on_restart", "durable=True"),
    KpoParameter("trigger_kwargs", note="the trigger receives the task's own parameters; remove it"),
    # KubernetesJobOperator.
    KpoParameter("parallelism", "num_nodes=4", operator=JOB),
    KpoParameter("completions", "num_nodes=4", operator=JOB),
    KpoParameter("backoff_limit", 'restart={"max_restarts": 3}', "restarts of all pods together", operator=JOB),
    KpoParameter("completion_mode", note="each pod has an index; remove it", operator=JOB),
    KpoParameter("manual_selector", note="the cluster selects the pods of a run; remove it", operator=JOB),
    KpoParameter("selector", note="the cluster selects the pods of a run; remove it", operator=JOB),
    KpoParameter("suspend", 'queue_name="team-a"', "a queue admits the run later", operator=JOB),
    KpoParameter("ttl_seconds_after_finished", 'ttl="1d"', operator=JOB),
    KpoParameter("wait_until_job_complete", "wait_for_completion=True", "the default", operator=JOB),
    KpoParameter("job_poll_interval", "poll_interval=10", operator=JOB),
    KpoParameter(
        "job_template_file", 'job="job.yaml"', "a job file of stepset; target= selects the kind of object", operator=JOB
    ),
    KpoParameter(
        "full_job_spec",
        'job={"script": "train.py"}',
        "a job of stepset; target= selects the kind of object",
        operator=JOB,
    ),
    KpoParameter("on_kill_propagation_policy", 'on_kill_action="delete"', "the pods are deleted, too", operator=JOB),
    KpoParameter("discover_pods_retry_number", note="a watch reports all pods; remove it", operator=JOB),
    KpoParameter("unwrap_single", note="the result is one value, that of rank 0; remove it", operator=JOB),
)

KPO_PARAMETERS = {row.name: row for row in _ROWS}
"""The parameters by their names, in the order of the documentation."""
