"""A grid search over independent nodes: each node fits its share of the settings, node 0 selects the best.

framework: plain          # no training environment, only STEPSET_*
"""

import json
import os
import sys
import time
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

GRID = [{"n_estimators": n, "max_depth": d} for n in (10, 20, 40) for d in (4, 8)]


def main() -> None:
    node, nodes = int(os.environ.get("STEPSET_NODE_RANK", "0")), int(os.environ.get("STEPSET_NUM_NODES", "1"))
    if "STEPSET_CHECKPOINT_DIR" not in os.environ:
        sys.exit("STEPSET_CHECKPOINT_DIR: not set; the nodes share results there: give checkpoint_dir in the job file")
    # A separate name for each start of the run, so that no node reads files of an earlier start.
    start = f"{os.environ.get('STEPSET_RUN', 'run')}-{os.environ.get('STEPSET_ATTEMPT', '0')}"
    parts = [Path(os.environ["STEPSET_CHECKPOINT_DIR"], f"{start}.node-{k}.json") for k in range(nodes)]

    digits = load_digits()
    mine = []
    share = GRID[node::nodes]
    for done, setting in enumerate(share, start=1):
        forest = RandomForestClassifier(**setting, random_state=0).fit(digits.data[:1500], digits.target[:1500])
        mine.append({**setting, "accuracy": round(forest.score(digits.data[1500:], digits.target[1500:]), 4)})
        if node == 0:
            line = {"step": done, "progress": done / len(share), "metrics": {"accuracy": mine[-1]["accuracy"]}}
            print(json.dumps({"stepset": line}), flush=True)
    parts[node].with_suffix(".new").write_text(json.dumps(mine))
    parts[node].with_suffix(".new").replace(parts[node])  # atomic

    if node == 0:
        give_up = time.monotonic() + 600
        while missing := [k for k, part in enumerate(parts) if not part.exists()]:
            if time.monotonic() > give_up:
                sys.exit(f"nodes {missing}: no result after 600 s")
            time.sleep(0.2)
        found = [entry for part in parts for entry in json.loads(part.read_text())]
        result = {"nodes": nodes, "settings": len(found), "best": max(found, key=lambda entry: entry["accuracy"])}
        if path := os.environ.get("STEPSET_RESULT_FILE"):
            Path(path).write_text(json.dumps(result))
        print(result, flush=True)


if __name__ == "__main__":
    main()
