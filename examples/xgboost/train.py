"""Boosted trees on scikit-learn's digits, each worker with its share of the rows.

stepset run examples/xgboost/train.py --framework xgboost --nodes 2 --procs-per-node 2
"""

import json
import os
import socket
from pathlib import Path
from zlib import crc32

import numpy as np
import xgboost as xgb
from sklearn.datasets import load_digits
from xgboost import collective
from xgboost.tracker import RabitTracker

ROUNDS = 10


class Progress(xgb.callback.TrainingCallback):
    """Reports progress in rank 0 only, because callbacks run in every worker."""

    def after_iteration(self, model: xgb.Booster, epoch: int, evals_log: dict) -> bool:
        if collective.get_rank() == 0:
            metrics = {"mlogloss": round(evals_log["train"]["mlogloss"][-1], 4)}
            line = {"step": epoch + 1, "progress": (epoch + 1) / ROUNDS, "metrics": metrics}
            print(json.dumps({"stepset": line}), flush=True)
        return False


def train() -> None:
    rank, size = collective.get_rank(), collective.get_world_size()
    digits = load_digits()
    rows = xgb.DMatrix(digits.data[rank:1500:size], digits.target[rank:1500:size])
    parameters = {"objective": "multi:softprob", "num_class": 10, "tree_method": "hist", "nthread": 1, "max_depth": 4}
    model = xgb.train(parameters, rows, ROUNDS, evals=[(rows, "train")], callbacks=[Progress()], verbose_eval=False)

    rank_sum = int(collective.allreduce(np.array([rank + 1]), collective.Op.SUM)[0])
    held_out = xgb.DMatrix(digits.data[1500:])
    right = (model.predict(held_out).argmax(axis=1) == digits.target[1500:]).mean()
    checksum = crc32(model.save_raw("json"))
    spread = [int(collective.allreduce(np.array([checksum]), op)[0]) for op in (collective.Op.MIN, collective.Op.MAX)]
    if rank == 0:
        result = {"world_size": size, "rank_sum": rank_sum, "models_equal": spread[0] == spread[1]}
        result["accuracy"] = round(float(right), 4)
        if checkpoint_dir := os.environ.get("STEPSET_CHECKPOINT_DIR"):
            model.save_model(Path(checkpoint_dir, "digits.ubj"))
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)


def main() -> None:
    # XGBoost reads no DMLC_* variable by itself: without these lines each worker trains alone on its share.
    uri, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
    task, workers = os.environ["DMLC_TASK_ID"], int(os.environ["DMLC_NUM_WORKER"])
    tracker = None
    if int(task) == 0:
        tracker = RabitTracker(n_workers=workers, host_ip=socket.gethostbyname(uri), port=port, sortby="task")
        tracker.start()
    # Ten tries last 90 s; the default of three tries ends after 6 s, before a slow tracker has started.
    with collective.CommunicatorContext(dmlc_tracker_uri=uri, dmlc_tracker_port=port, dmlc_task_id=task, dmlc_retry=10):
        train()
    if tracker:
        tracker.wait_for()


if __name__ == "__main__":
    main()
