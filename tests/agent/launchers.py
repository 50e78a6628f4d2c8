"""Programs that start ranks as torchrun and mpirun do; the agent's tests run them as launchers."""

TORCHRUN = """
import os, signal, sys

# Starts N copies of a program in sessions of their own with RANK set. When one fails it ends the others and exits 1,
# as torchrun does; RESTARTS times it starts them all again; GOES_ON: it waits for the others; FORGETS: it then exits 0.
# WAITS: at the end it waits for other nodes and ignores signals.
size, program = int(sys.argv[1]), sys.argv[2:]
goes_on, restarts = "GOES_ON" in os.environ, int(os.environ.get("RESTARTS", "0"))
ranks, signals = {}, []

def end(*_):
    signals.append(1)
    for pid in ranks:
        os.kill(pid, signal.SIGTERM)

def start():
    for rank in range(size):
        env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank),
               "WORLD_SIZE": os.environ.get("REPORTED_SIZE", str(size))}
        pid = os.fork()
        if not pid:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execvpe(program[0], program, env)
        ranks[pid] = rank

signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
print("launching", size, flush=True)
start()
failed = False
while ranks:
    pid, status = os.wait()
    del ranks[pid]
    if status and not failed:
        failed = True
        if not goes_on:
            end()
    if failed and not ranks and restarts and len(signals) < 2:
        restarts -= 1
        failed = False
        start()
while "WAITS" in os.environ:
    signal.pause()
sys.exit(1 if failed and "FORGETS" not in os.environ else 0)
"""

MPIRUN = """
import os, select, signal, subprocess, sys

# Starts N copies of a program whose output comes through it, in fragments of at most 4096 bytes, as mpirun's do.
# RSH: on the hosts it names, by that command; else here, each with a terminal-less pipe and no agent in its pod.
size, program = int(sys.argv[1]), sys.argv[2:]
tag = os.environ.get("TAGS")
rsh, _, hosts = os.environ.get("RSH", "").partition("@")
names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")
pipes, ranks = {}, []

def end(*_):
    for rank in ranks:
        rank.terminate()

def hand_on(number, _):
    for rank in ranks:
        rank.send_signal(number)

signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGUSR1, hand_on)
for rank in range(size):
    values = dict(zip(names, (str(rank), str(rank), os.environ.get("REPORTED_SIZE", str(size)))))
    if "RANKS_RESULT_FILE" in os.environ:
        values["STEPSET_RESULT_FILE"] = os.environ["RANKS_RESULT_FILE"]
    argv, env = program, {**os.environ, **values, "STEPSET_AGENT_DIR": "/nowhere"}
    if rsh:
        import shlex
        line = " ".join(f"{k}={v}" for k, v in values.items()) + " exec " + shlex.join(program)
        argv = [*rsh.split(), "-x", hosts.split(",")[rank % len(hosts.split(","))], line]
    ranks.append(subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    pipes[ranks[-1].stdout.fileno()] = rank
print("mpirun here", flush=True)
while pipes:
    for fd in select.select(list(pipes), [], [])[0]:
        data = os.read(fd, 4096)
        if not data:
            del pipes[fd]
        if tag and data:
            data = b"".join(b"[1,%d]<stdout>:%s" % (pipes[fd], line) for line in data.splitlines(True))
        os.write(1, data)
codes = [rank.wait() for rank in ranks]
sys.exit(next((code if code > 0 else 128 - code for code in codes if code), 0))
"""
