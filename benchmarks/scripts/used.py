"""Runs a command and prints, as JSON, its wall and CPU seconds and its peak memory in KiB.

Before a new process executes the command, it has the memory of the process that started it, and the kernel includes
that in the command's peak memory (Linux fs/exec.c, exec_mmap). Therefore a small process must start the command.
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
