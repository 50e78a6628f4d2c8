"""The devices that each process of a pod sees: all of the pod's, its own first."""

from __future__ import annotations

import pytest

from tests.agent.pods import Pod

SHOWN = "echo ${CUDA_VISIBLE_DEVICES-unset}"
GPUS = "GPU-11111111-aaaa,GPU-22222222-bbbb"
MIGS = "MIG-11111111-aaaa,MIG-22222222-bbbb"


def seen(pod: Pod, indexes: str, env: dict[str, str], processes: int = 2) -> list[str]:
    """The list of each process of a pod; `indexes` are those that the plan knows."""
    ended = pod.run(
        "/bin/sh", "-c", SHOWN, processes=processes, process_env={"CUDA_VISIBLE_DEVICES": "{devices}" + indexes},
        env={"NVIDIA_VISIBLE_DEVICES": "", **env},
    )  # fmt: skip
    assert ended.exit_code == 0
    return [ended.lines(f"rank {rank}")[0].decode() for rank in range(processes)]


def turned(listed: str) -> list[str]:
    first, second = listed.split(",")
    return [f"{first},{second}", f"{second},{first}"]


@pytest.mark.parametrize("listed", ["0,1", "6,2", GPUS, MIGS])
def test_a_list_for_cuda_is_turned(pod: Pod, listed: str) -> None:
    env = {"CUDA_VISIBLE_DEVICES": listed, "NVIDIA_VISIBLE_DEVICES": "GPU-9,GPU-8"}
    assert seen(pod, "0,1", env) == turned(listed)


@pytest.mark.parametrize("indexes", ["", "0,1"])
@pytest.mark.parametrize("listed", [GPUS, MIGS])
def test_the_device_plugins_uuids_are_turned(pod: Pod, listed: str, indexes: str) -> None:
    assert seen(pod, indexes, {"NVIDIA_VISIBLE_DEVICES": listed}) == turned(listed)


@pytest.mark.parametrize("listed", ["all", "void", "none", "", "4,5", "/var/run/nvidia-container-devices", "0:1"])
def test_other_names_of_the_device_plugin_are_not_for_cuda(pod: Pod, listed: str) -> None:
    assert seen(pod, "0,1", {"NVIDIA_VISIBLE_DEVICES": listed}) == ["0,1", "1,0"]
    assert seen(pod, "", {"NVIDIA_VISIBLE_DEVICES": listed}) == ["unset", "unset"]


def test_a_pod_without_known_devices_sets_nothing(pod: Pod) -> None:
    assert seen(pod, "", {}) == ["unset", "unset"]


@pytest.mark.parametrize("none", ["", "-1"])
def test_devices_that_are_hidden_stay_hidden(pod: Pod, none: str) -> None:
    assert seen(pod, "0,1", {"CUDA_VISIBLE_DEVICES": none}) == [none, none]


def test_more_processes_than_devices_share_them(pod: Pod) -> None:
    assert seen(pod, "0,1", {}, processes=4) == ["0,1", "1,0", "0,1", "1,0"]
