"""Runs a command and prints its wall-clock seconds, its CPU seconds and its peak memory in KiB as JSON.

A new process uses the memory of its parent process until the new process executes the command. The kernel includes
this memory in the peak memory of the command (Linux fs/exec.c, exec_mmap). Therefore a small process must start the
command.
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
