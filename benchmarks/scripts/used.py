"""Runs a command and prints, as JSON, its wall and CPU seconds and its peak memory in KiB.

The kernel counts the memory of the process that starts a command as the command's until it executes (Linux fs/exec.c,
exec_mmap), so a small process must start it.
"""

import json
import os
import subprocess
import sys
import time

began = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
wall = time.perf_counter() - began
sys.stdout.write(json.dumps({"wall": wall, "cpu": used.ru_utime + used.ru_stime, "kib": used.ru_maxrss}))
sys.exit(process.returncode)
