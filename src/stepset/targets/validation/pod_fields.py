"""The names of the fields of pods and containers. The API server ignores unknown fields without an error.

Source: k8s.io/api v0.36 core/v1/types.go (PodSpec, Container).
"""

from __future__ import annotations

POD_FIELDS = (
    "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
    "enableServiceLinks", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers",
    "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os",
    "overhead", "preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims", "resources",
    "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "schedulingGroup", "securityContext",
    "serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
    "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes", "workloadRef",
)  # fmt: skip
ROW_FIELDS = {
    "env": ("name", "value", "valueFrom"),
    "envFrom": ("configMapRef", "prefix", "secretRef"),
    "ports": ("containerPort", "hostIP", "hostPort", "name", "protocol"),
    "volumeMounts": (
        "mountPath", "mountPropagation", "name", "readOnly", "recursiveReadOnly", "subPath", "subPathExpr",
    ),
}  # fmt: skip
"""A mapping from the names of a container's lists to the fields of their entries."""
SOURCE_FIELDS = {
    "configMapKeyRef": ("key", "name", "optional"),
    "fieldRef": ("apiVersion", "fieldPath"),
    "fileKeyRef": ("key", "optional", "path", "volumeName"),
    "resourceFieldRef": ("containerName", "divisor", "resource"),
    "secretKeyRef": ("key", "name", "optional"),
}
"""A mapping from the fields of `valueFrom` to the fields that they contain."""
CONTAINER_FIELDS = (
    "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name",
    "ports", "readinessProbe", "resizePolicy", "resources", "restartPolicy", "restartPolicyRules", "securityContext",
    "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty",
    "volumeDevices", "volumeMounts", "workingDir",
)  # fmt: skip
