"""A test covers every row of data/peers.json, or this module lists the reason why none does."""

from __future__ import annotations

from tests.conformance import test_peers_mpi, test_peers_names, test_peers_torch
from tests.conformance.peers import LEFT_OUT, ROWS, TESTED

_INIT_CONTAINER = "waits in an init container; here the agent waits, in the pod itself, for every peer's name"
_OPERATOR = "a rule of that system's own controller or plugins"
_TARGET = "about manifests, which the targets make from a plan"
_DISCOVERY = "a script that lists running pods for elastic Horovod, which is not offered"
_OTHER_SYNTAX = "that system's own spelling of names or sizes"
_LOCAL = "about processes on one machine, which the local backend runs"
_RUNTIME = "what the program does once it runs; nothing in a plan decides it"
_THEIR_FILTER = "options of that launcher that stepset does not hand on"

NOT_APPLICABLE = {
    "volcano.pytorch.wait_master.disabled_by_default": _INIT_CONTAINER,
    "volcano.pytorch.wait_master.no_duplicate": _INIT_CONTAINER,
    "volcano.pytorch.wait_master.custom_image_timeout": _INIT_CONTAINER,
    "kfv1.init.worker_waits_for_master_dns": _INIT_CONTAINER,
    "kfv1.init.master_does_not_wait": _INIT_CONTAINER,
    "volcano.webhook.mpi_plugin_pulls_svc_and_ssh": _OPERATOR,
    "kfv1.jax.bad_index": _OPERATOR,
    "mpiop.discover.empty": _DISCOVERY,
    "mpiop.discover.two": _DISCOVERY,
    "mpiop.discover.launcher_only": _DISCOVERY,
    "mpiop.discover.domain": _DISCOVERY,
    "mpiop.discover.sorted": _DISCOVERY,
    "mpiop.gang.min_available_explicit": _TARGET,
    "mpiop.gang.min_available_default": _TARGET,
    "torchx.k8s.rank0_host_env": _OPERATOR,
    "torchx.k8s.resources_reserve_100m_1024M": _OPERATOR,
    "torchx.k8s.resources_zero_reserve": _OPERATOR,
    "torchx.k8s.efa_override_zero_removes": _OTHER_SYNTAX,
    "torchx.k8s.efa_override_adds": _OTHER_SYNTAX,
    "torchx.k8s.min_replicas_to_min_available": _TARGET,
    "torchx.k8s.retry_policy_application": _TARGET,
    "torchx.k8s.no_retries_no_policies": _TARGET,
    "torchx.k8s.label_cleaning": _TARGET,
    "torchx.k8s.conflict_409_is_value_error": _TARGET,
    "torchx.k8s.dryrun_is_server_side": _TARGET,
    "torchx.normalize_str.'-/_a/b/CD!123!'": _OTHER_SYNTAX,
    "torchx.normalize_str.'-a-bcd123'": _OTHER_SYNTAX,
    "torchx.normalize_str.'!!!'": _OTHER_SYNTAX,
    "torchx.normalize_str.'_-job'": _OTHER_SYNTAX,
    "torchx.make_unique.seeded": _OTHER_SYNTAX,
    "torchx.local.cuda_split.two_replicas": _LOCAL,
    "torchx.local.cuda_split.multi_role": _LOCAL,
    "torchx.overlay.list_append": _OTHER_SYNTAX,
    "torchx.overlay.dict_merge": _OTHER_SYNTAX,
    "torchx.overlay.put_replaces_list": _OTHER_SYNTAX,
    "deepspeed.filter.include_slots": _THEIR_FILTER,
    "deepspeed.filter.unknown_host": _THEIR_FILTER,
    "deepspeed.filter.include_exclude_exclusive": _THEIR_FILTER,
    "deepspeed.openmpi_runner.btl_eth0_default": _THEIR_FILTER,
    "metaflow.jobset.control_fqdn": _OTHER_SYNTAX,
    "metaflow.jobset.replicas": _OTHER_SYNTAX,
    "metaflow.jobset.control_node_index": _OTHER_SYNTAX,
    "metaflow.local.multinode": _LOCAL,
    "jax.k8s.needs_indexed_job": _TARGET,
    "torchrun.worker_sigkill_exit_1": _RUNTIME,
    "openmpi5.root_needs_two_vars": _RUNTIME,
    "openmpi5.exit_code_propagates": _RUNTIME,
}


def test_every_row_is_tested_or_listed_with_a_reason() -> None:
    assert sorted(NOT_APPLICABLE) == sorted(LEFT_OUT)
    assert sorted(set(ROWS)) == sorted(TESTED | _tested_in_a_body())


def _tested_in_a_body() -> set[str]:
    """Returns the rows that tests use by name in their bodies; the tests need not have run."""
    return {
        constant
        for module in (test_peers_torch, test_peers_mpi, test_peers_names)
        for test in vars(module).values()
        if callable(test) and getattr(test, "__name__", "").startswith("test_")
        for constant in test.__code__.co_consts
        if isinstance(constant, str) and constant in ROWS
    }
