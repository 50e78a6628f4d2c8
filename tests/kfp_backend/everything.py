"""One pipeline that uses everything: settings of the task of every kind, and every construct of a pipeline."""

# KFP evaluates annotations: no `from __future__ import annotations`.
from typing import Any, List  # noqa: UP035  # KFP supports only this List

from kfp import dsl, kubernetes
from tools.kfp_backend.layout import STEP_IMAGE

from stepset_kfp import cleanup_training, distribute, distributed_train, wait_for_training

CLAIM, SECRET, SETTINGS = "everything", "everything-secret", "everything-settings"
"""Names of a claim, a Secret and a ConfigMap, each with the entry `word`."""
VOLUME = "/shared"
HOME = f"{VOLUME}/home"
TRAIN = """\
import json, os, pathlib, sys
seen = {name: os.environ.get(name) for name in ("PLAIN", "FROM_SECRET", "FROM_SETTINGS")}
seen |= {path: pathlib.Path(path, "word").read_text() for path in ("/secret", "/settings") if os.path.exists(path)}
seen["shared"] = os.path.isdir("/shared")
if os.environ["STEPSET_NODE_RANK"] == "0":
    for step in range(1, 21):
        progress = {"step": step, "progress": step / 20, "metrics": {"loss": 1 / step, "accuracy": step / 20}}
        print(json.dumps({"stepset": progress}), flush=True)
    home = pathlib.Path(os.environ["STEPSET_CHECKPOINT_DIR"])
    home.mkdir(parents=True, exist_ok=True)
    (home / "model.bin").write_bytes(b"weights")
    (home / "seen.json").write_text(json.dumps(seen))
    result = {"item": sys.argv[1], "accuracy": 0.9, "model": str(home / "model.bin")}
    pathlib.Path(os.environ["STEPSET_RESULT_FILE"]).write_text(json.dumps(result))
"""


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def choose(text: str, key: str) -> str:
    """Returns the text; the key makes KFP's cache know no earlier call."""
    return text


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def collect(results: List[dict], page: dsl.Input[dsl.HTML], model: dsl.Input[dsl.Model]) -> str:  # noqa: UP006
    """Returns the items of the loop's results, and reads a report and a model."""
    from pathlib import Path

    assert "<html" in Path(page.path).read_text()
    assert Path(model.path).read_bytes() == b"weights"
    return " ".join(sorted(each["item"] for each in results))


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def count(word: str, notes: dsl.Output[dsl.Artifact]) -> int:
    """Writes an artifact; returns the number of nodes."""
    import os
    from pathlib import Path

    Path(notes.path).write_text(f"{word} of node {os.environ['STEPSET_NODE_RANK']}")
    return int(os.environ["STEPSET_NUM_NODES"])


def everything(settings: dict[str, Any], key: str) -> Any:
    """Returns the pipeline.

    Args:
        settings: inputs of distributed_train with which training pods run on the cluster.
        key: a text that no earlier pipeline had, so that its first run has no outputs in KFP's cache.
    """
    pods = {name: settings[name] for name in ("framework", "image", "env", "pod_template")}
    counted = distribute(count, num_nodes=2, procs_per_node=1, shared_dir=VOLUME, **pods)

    def train(name: str, item: Any, **more: Any) -> dsl.PipelineTask:
        task = distributed_train(
            **{**settings, **more}, name=name, args=[item], checkpoint_dir=f"{HOME}/{name}-{item}", log_ranks="all"
        )
        return kubernetes.mount_pvc(task, CLAIM, VOLUME)

    @dsl.pipeline(name="nested")
    def nested():
        train("nested", "n", num_nodes=1)

    @dsl.pipeline(name="everything")
    def pipeline(word: str = "yes", items: List[str] = ["a", "b"]):  # noqa: B006, UP006
        with dsl.ExitHandler(cleanup_training()):
            chosen = choose(text=word, key=key)
            chosen.set_caching_options(True)
            full = _with_all_settings(train("full", "f", num_nodes=2))
            cached = train("cached", "c", num_nodes=1, caching=True)
            wait_for_training(run=full.outputs["run"])
            with dsl.If(chosen.output == "yes"):
                kubernetes.mount_pvc(counted(word=chosen.output), CLAIM, VOLUME)
            with dsl.Else():
                train("other", "o", num_nodes=1)
            with dsl.ParallelFor(items) as item:
                looped = train("loop", item, num_nodes=1)
            nested().after(full)
            collect(
                results=dsl.Collected(looped.outputs["result"]),
                page=full.outputs["report"],
                model=cached.outputs["model"],
            )

    return pipeline


def _with_all_settings(task: dsl.PipelineTask) -> dsl.PipelineTask:
    """Sets on a task everything that a component's `task_config_passthroughs` can name."""
    task.set_cpu_request("10m").set_cpu_limit("2").set_memory_request("64Mi").set_memory_limit("512Mi")
    task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)
    task.set_env_variable("PLAIN", 'a "plain" word')
    kubernetes.use_secret_as_env(task, SECRET, {"word": "FROM_SECRET"})
    kubernetes.use_config_map_as_env(task, SETTINGS, {"word": "FROM_SETTINGS"})
    kubernetes.use_secret_as_volume(task, SECRET, "/secret")
    kubernetes.use_config_map_as_volume(task, SETTINGS, "/settings")
    kubernetes.add_node_selector(task, "kubernetes.io/os", "linux")
    kubernetes.add_toleration(task, key="example-key", operator="Exists", effect="NoSchedule")
    linux = [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]
    kubernetes.add_node_affinity(task, match_expressions=linux)
    return task
