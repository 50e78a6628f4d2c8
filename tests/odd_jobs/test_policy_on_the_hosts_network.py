"""A network policy for pods on the network of their machines."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"num_nodes": 2, "network": {"policy": True}, "pod_template": {"hostNetwork": True}},
    expected="The job is refused: the policy would protect nothing.",
    source="kubernetes.io/docs/concepts/services-networking/network-policies (hostNetwork pods)",
    refused=everywhere("network.policy: has no effect on pods with pod_template.hostNetwork; leave one of them out"),
)
