"""The agent reads which rank failed first from the launcher's report, if it does not wrap the ranks.

The texts were printed by these launchers: torchrun 2.15, Open MPI 4.1.4 and 5.0, MPICH 4.0.2.
"""

from __future__ import annotations

from typing import Any

import pytest

from stepset.agent.diagnosis import find_error, launcher_report
from tests.agent.pods import Pod

TORCHRUN = """E1121 01:01:49.113 22072 torch/distributed/elastic/multiprocessing/api.py:998] failed (exitcode: -9)
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=======================================================
w.py FAILED
-------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_01:01:49
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 22090)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 22090
-------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_01:01:49
  host      : localhost
  rank      : 5 (local_rank: 1)
  exitcode  : {code} (pid: 22091)
  error_file: <N/A>
  traceback : {traceback}
=======================================================
"""
UNRECORDED = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
RECORDED = """Traceback (most recent call last):
    File "/code/train.py", line 5, in main
      raise ValueError("bad learning rate")
  ValueError: bad learning rate
"""
OPEN_MPI_CODE = """--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[9565,1],1]
  Exit code:    7
--------------------------------------------------------------------------
"""
OPEN_MPI_5_CODE = OPEN_MPI_CODE.replace("[[9565,1],1]", "[prterun-vm-19@1,1]").replace("mpirun", "prterun")
OPEN_MPI_SIGNAL = """--------------------------------------------------------------------------
mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).
--------------------------------------------------------------------------
"""
OPEN_MPI_ABORT = """--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD
with errorcode 9.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
--------------------------------------------------------------------------
"""
MPICH_ABORT = "Abort(9) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 9) - process 1\n"
MPICH_SIGNAL = """
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 22993 RUNNING AT vm
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
"""
MPICH_CODE = MPICH_SIGNAL.replace("CODE: 9", "CODE: 7").split("YOUR APPLICATION TERM")[0]


@pytest.mark.parametrize(
    ("text", "report"),
    [
        (TORCHRUN.format(code=7, traceback=UNRECORDED), {"rank": 5, "exit_code": 7}),
        (TORCHRUN.format(code=-9, traceback="Signal 9 (SIGKILL) received by PID 22091"), {"rank": 5, "signal": 9}),
        (TORCHRUN.format(code=1, traceback=RECORDED), {"rank": 5, "exit_code": 1}),
        (OPEN_MPI_CODE, {"rank": 1, "exit_code": 7}),
        (OPEN_MPI_5_CODE, {"rank": 1, "exit_code": 7}),
        (OPEN_MPI_SIGNAL, {"rank": 1, "signal": 9}),
        (OPEN_MPI_ABORT, {"rank": 2, "exit_code": 9}),
        (MPICH_ABORT, {"rank": 1, "exit_code": 9}),
        (MPICH_SIGNAL, {"signal": 9}),
        (MPICH_CODE, {"exit_code": 7}),
        ("loss 0.1\nsome rank failed\n", {}),
    ],
)
def test_reads_the_rank_and_its_end_from_the_launchers_report(text: str, report: dict[str, Any]) -> None:
    assert launcher_report("epoch 1\n" + text + "bye\n") == report


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (TORCHRUN.format(code=7, traceback=UNRECORDED), ""),
        ("train.py: error: no --lr\n" + TORCHRUN.format(code=2, traceback=UNRECORDED), "train.py: error: no --lr"),
        ("Traceback (most recent call last):\n  File\nOSError: no data\n" + OPEN_MPI_CODE, "OSError: no data"),
        (OPEN_MPI_SIGNAL, "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed)."),
    ],
)
def test_the_error_is_the_ranks_not_the_launchers(text: str, error: str) -> None:
    assert find_error(text, rank=5) == error


def test_the_report_of_a_users_launcher_becomes_the_verdict(any_pod: Pod) -> None:
    report = any_pod.directory / "report"
    report.write_text("ValueError: from nowhere\n" + TORCHRUN.format(code=-9, traceback="Signal 9 (SIGKILL)"))
    ended = any_pod.run("/bin/sh", "-c", f"cat {report} >&2; exit 1", source="node 2")
    assert ended.exit_code == 1
    assert (ended.verdict["rank"], ended.verdict["signal"]) == (5, 9)
    assert "exit_code" not in ended.verdict
    assert ended.event("failed")["rank"] == 5
    assert ended.verdict["error"] == "ValueError: from nowhere"
    assert ended.verdict["tail"][-1].startswith("=====")
