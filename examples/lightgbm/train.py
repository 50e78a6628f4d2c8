"""Boosted trees on scikit-learn's digits, each machine with its share of the rows.

stepset run examples/lightgbm/train.py --framework lightgbm --nodes 2 --procs-per-node 2
"""

import json
import os
import socket
from pathlib import Path

import lightgbm as lgb
from sklearn.datasets import load_digits

ROUNDS = 10
ROWS = 1500


def network() -> tuple[int, int, dict]:
    """Returns the rank, the number of machines and the parameters that connect the machines."""
    # LightGBM reads no LIGHTGBM_* variable by itself: without these parameters each machine trains alone on its share.
    rank = int(os.environ["LIGHTGBM_RANK"])
    machines = [line.split() for line in Path(os.environ["LIGHTGBM_MACHINES"]).read_text().splitlines()]
    listed = ",".join(f"{address(host)}:{port}" for host, port in machines)
    own_port = int(machines[rank][1])
    network = {"machines": listed, "num_machines": len(machines), "local_listen_port": own_port, "time_out": 10}
    return rank, len(machines), network


def address(host: str) -> str:
    """Returns the address by which LightGBM recognises a machine: it compares the list with those of its interfaces."""
    found = socket.gethostbyname(host)
    return "127.0.0.1" if found.startswith("127.") else found  # in a local run, the machines differ by their ports


def main() -> None:
    rank, size, parameters = network()
    digits = load_digits()
    # Rank r has r + 1 parts of the rows. The root of a tree counts the rows of all machines, and proves who took part.
    part = ROWS // (size * (size + 1) // 2)
    first = part * rank * (rank + 1) // 2
    own = slice(first, first + part * (rank + 1))
    rows = lgb.Dataset(digits.data[own], digits.target[own], params={"pre_partition": True})

    def report(env: lgb.callback.CallbackEnv) -> None:
        if rank == 0:
            step, loss = env.iteration + 1, env.evaluation_result_list[0][2]
            line = {"step": step, "progress": step / ROUNDS, "metrics": {"multi_logloss": round(loss, 4)}}
            print(json.dumps({"stepset": line}), flush=True)

    parameters |= {
        "objective": "multiclass",
        "num_class": 10,
        "tree_learner": "data",
        "num_threads": 1,
        "verbosity": -1,
    }
    model = lgb.train(parameters, rows, ROUNDS, valid_sets=[rows], callbacks=[report])
    if rank == 0:
        counted = model.dump_model()["tree_info"][0]["tree_structure"]["internal_count"]
        right = (model.predict(digits.data[ROWS:]).argmax(axis=1) == digits.target[ROWS:]).mean()
        result = {"world_size": size, "rank_sum": counted // part, "accuracy": round(float(right), 4)}
        if checkpoint_dir := os.environ.get("STEPSET_CHECKPOINT_DIR"):
            model.save_model(Path(checkpoint_dir, "digits.txt"))
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)


if __name__ == "__main__":
    main()
