"""Training scripts that the tests of the command line run: plain Python without a framework, so that they are quick."""

from __future__ import annotations

import os
from pathlib import Path

FLAGS = ("-n", "2", "-p", "2", "--set", "framework.launcher=none")
"""Two nodes with two ranks each, started by stepset itself."""

TRAIN = """
import json, os, sys

rank = int(os.environ["RANK"])
print("args", sys.argv[1:], flush=True)
if rank == 0:
    for step in (1, 2):
        print(json.dumps({"stepset": {"step": step, "progress": step / 2, "metrics": {"loss": 1 / step}}}), flush=True)
    with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
        json.dump({"world_size": int(os.environ["WORLD_SIZE"])}, file)
"""

FAIL = """
import os, time
from pathlib import Path

rank = int(os.environ["RANK"])
print(f"rank {rank} starts", flush=True)
started = Path(__file__).with_name(os.environ["STEPSET_RUN"])
started.mkdir(exist_ok=True)
(started / str(rank)).touch()
if rank == 3:
    while len(os.listdir(started)) < int(os.environ["WORLD_SIZE"]):  # ranks that have not started would be stopped
        time.sleep(0.02)
    raise ValueError("bad batch")
time.sleep(600)
"""

SLEEP = """
import os, signal, sys, time

def stop(number, frame):
    print("saved a checkpoint", flush=True)
    sys.exit(0)

if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, stop)
print("ready", os.getpid(), flush=True)
time.sleep(600)
"""

TALK = """
import time

while True:
    print("still here", flush=True)
    time.sleep(0.05)
"""

BYTES = r"""
import os, sys

if os.environ["RANK"] == "0":
    sys.stdout.buffer.write(b"caf\xc3\xa9 \xff\xfe\n\n[rank 9] not me\n[rank0]: marked by torch\nno newline at the end")
"""

BIG_RESULT = """
import json, os

with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
    json.dump("x" * 5000, file)
"""


def write_scripts(directory: Path) -> None:
    """Writes all scripts, as `train.py`, `fail.py` ..."""
    for name, text in (
        ("train", TRAIN), ("fail", FAIL), ("sleep", SLEEP), ("talk", TALK), ("bytes", BYTES), ("big_result", BIG_RESULT)
    ):  # fmt: skip
        (directory / f"{name}.py").write_text(text)


def processes_that_mention(path: Path) -> list[str]:
    """Returns the command lines of running processes with `path` in their arguments or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
                if str(path).encode() in words + (entry / "environ").read_bytes():
                    found.append(words.replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return found
