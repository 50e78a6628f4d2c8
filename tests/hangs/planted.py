"""Programs of which some ranks hang. The line in which the guilty ranks wait ends with the comment HANGS."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
import asyncio, atexit, concurrent.futures, ctypes, fcntl, gc, itertools, multiprocessing, os, queue, re, signal
import socket, subprocess, sys, threading, time, urllib.request
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
RANK = int(os.environ["RANK"])
values = torch.ones(8)
def here(): print("here", flush=True)
"""
JOIN = 'dist.init_process_group("gloo")\nfor _ in range(3): dist.all_reduce(values)\n'
_STEPS = JOIN + "if RANK == 1: here(); planted()\ndist.all_reduce(values)\n"


@dataclass(frozen=True)
class Planted:
    """A program.

    Args:
        source: the program after HEAD.
        kind: the class of the hang.
        guilty: the ranks that are the cause.
        state: the state of the guilty ranks, or "" for any.
        process: the process of a rank in which the line is, if it is not the rank's own.
        size: the number of ranks.
        exited: the ranks that exit with code 0.
    """

    source: str
    kind: str = "Missing"
    guilty: tuple[int, ...] = (1,)
    state: str = ""
    process: str = ""
    size: int = 2
    exited: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The whole program."""
        return HEAD + self.source


def _rank_1(body: str, kind: str = "Missing", state: str = "", before: str = "", process: str = "") -> Planted:
    """A program whose rank 1 executes `body` in a function, while rank 0 waits in all_reduce."""
    lines = "".join(f"    {line}\n" for line in body.strip().split("\n"))
    return Planted(f"{before}\ndef planted():\n{lines}{_STEPS}", kind, state=state, process=process)


PLANTED = {
    # locks and threads
    "lock": _rank_1("lock = threading.Lock()\nlock.acquire()\nlock.acquire() # HANGS", state="lock"),
    "two_locks": _rank_1(
        "threading.Thread(target=other, daemon=True).start()\n"
        "with one:\n    time.sleep(0.3)\n    with two: # HANGS\n        pass",
        "Blocked",
        "lock",
        "one, two = threading.Lock(), threading.Lock()\n"
        "def other():\n    with two:\n        time.sleep(0.3)\n        with one:\n            pass",
    ),
    "queue": _rank_1("queue.Queue().get() # HANGS", state="lock"),
    "event": _rank_1("threading.Event().wait() # HANGS", state="lock"),
    "future": _rank_1(
        "concurrent.futures.ThreadPoolExecutor(1).submit(load).result()",
        before="def load():\n    time.sleep(1000) # HANGS",
    ),
    "thread": _rank_1(
        "thread = threading.Thread(target=load)\nthread.start()\nthread.join()",
        before="def load():\n    time.sleep(1000) # HANGS",
    ),
    "asyncio": _rank_1("asyncio.run(waits()) # HANGS", before="async def waits(): await asyncio.Event().wait()"),
    "signal_handler": _rank_1(
        "signal.signal(signal.SIGUSR1, handler)\nos.kill(os.getpid(), signal.SIGUSR1)\ntime.sleep(1)",
        state="pipe",
        before="def handler(*_):\n    os.read(os.pipe()[0], 1) # HANGS",
    ),
    "destructor": _rank_1(
        "Closes()\ngc.collect()",
        state="sleeping",
        before="class Closes:\n    def __del__(self):\n        time.sleep(1000) # HANGS",
    ),
    # files, pipes, sockets
    "pipe": _rank_1("os.read(os.pipe()[0], 1) # HANGS", state="pipe"),
    "full_pipe": _rank_1("torch.save(torch.ones(1 << 20), os.fdopen(os.pipe()[1], 'wb')) # HANGS", state="pipe"),
    "fifo": _rank_1("os.mkfifo(path)\nopen(path, 'wb') # HANGS", before="path = __file__ + '.fifo'"),
    "input": _rank_1("os.dup2(os.pipe()[0], 0)\nsys.stdin = open(0)\ninput() # HANGS", state="pipe"),
    "socket": _rank_1("own, other = socket.socketpair()\nown.recv(1) # HANGS", state="socket"),
    "accept": _rank_1("socket.create_server(('127.0.0.1', 0)).accept() # HANGS", state="socket"),
    "http": _rank_1(
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "urllib.request.urlopen('http://127.0.0.1:%d' % server.getsockname()[1]) # HANGS",
        state="socket",
    ),
    "flock": _rank_1(
        "file, other = open(path, 'w'), open(path, 'w')\nfcntl.flock(other, fcntl.LOCK_EX)\n"
        "fcntl.flock(file, fcntl.LOCK_EX) # HANGS",
        state="lock",
        before="path = __file__ + '.lock'",
    ),
    "kernel": _rank_1(  # the parent of vfork waits, in state D, until the child has opened the FIFO
        "os.mkfifo(path)\nactions = [(os.POSIX_SPAWN_OPEN, 0, path, os.O_RDONLY, 0)]\n"
        "os.posix_spawn('/bin/true', ['true'], {}, file_actions=actions) # HANGS",
        "Blocked",
        "disk",
        "path = __file__ + '.spawn'",
    ),
    # processes
    "subprocess": _rank_1("subprocess.run(['sleep', '1000']) # HANGS", state="child", process="child process sleep"),
    "subprocess_input": _rank_1(
        "subprocess.run(['cat'], stdin=os.pipe()[0], stdout=-1) # HANGS", state="child", process="child process cat"
    ),
    "system": _rank_1("os.system('sleep 1000') # HANGS", state="child", process="child process sleep"),
    "python_child": _rank_1(
        "open(path, 'w').write('\\n' * sys._getframe().f_lineno + 'import time; time.sleep(1000)')\n"
        "subprocess.run([sys.executable, path]) # HANGS",
        state="sleeping",
        before="path = __file__ + '.child.py'",
        process="child process python",
    ),
    "forked": _rank_1(
        "process = multiprocessing.get_context('fork').Process(target=load)\nprocess.start()\nprocess.join()",
        state="sleeping",
        before="def load():\n    time.sleep(1000) # HANGS",
    ),
    "pool": _rank_1(
        "multiprocessing.get_context('fork').Pool(2).map(load, range(2))",
        state="sleeping",
        before="def load(n):\n    if n: time.sleep(1000) # HANGS",
    ),
    "process_pool": _rank_1(
        "concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context('fork')).submit(load).result()",
        state="sleeping",
        before="def load():\n    time.sleep(1000) # HANGS",
    ),
    "stop": _rank_1("os.kill(os.getpid(), signal.SIGSTOP)", "Blocked", "stopped"),
    # C code
    "gil": _rank_1(
        "lock = ctypes.PyDLL(None).pthread_mutex_lock\nmutex = ctypes.create_string_buffer(64)\nlock(mutex)\n"
        "lock(mutex) # HANGS",
        "Blocked",
        "gil",
    ),
    "c_pause": _rank_1("ctypes.CDLL(None).sem_wait(ctypes.create_string_buffer(64)) # HANGS", state="lock"),
    "regex": _rank_1("re.match('(a+)+$', 'a' * 60 + 'b') # HANGS", "Busy"),
    "c_loop": _rank_1("sum(itertools.repeat(1)) # HANGS", "Busy"),
    "loop": _rank_1("while True: pass # HANGS", "Busy", "running"),
    # torch
    "data_set": Planted(
        "class Data(Dataset):\n    def __len__(self): return 64\n    def __getitem__(self, n):\n"
        "        if RANK == 1 and n == 9:\n            here()\n            time.sleep(1000) # HANGS\n"
        "        return torch.ones(4)\n"
        + JOIN
        + "for batch in DataLoader(Data(), batch_size=2): dist.all_reduce(batch)",
        state="sleeping",
    ),
    "worker": Planted(
        "class Data(Dataset):\n    def __len__(self): return 64\n    def __getitem__(self, n):\n"
        "        if RANK == 1 and n == 9:\n            here()\n            os.read(os.pipe()[0], 1) # HANGS\n"
        "        return torch.ones(4)\n"
        + JOIN
        + "for batch in DataLoader(Data(), batch_size=2, num_workers=2): dist.all_reduce(batch)",
        process="DataLoader worker 0",
    ),
    "stopped_worker": Planted(
        "class Data(Dataset):\n    def __len__(self): return 64\n    def __getitem__(self, n):\n"
        "        if RANK == 1 and n == 9:\n            here()\n            os.kill(os.getpid(), signal.SIGSTOP)\n"
        "        return torch.ones(4)\n"
        + JOIN
        + "for batch in DataLoader(Data(), batch_size=2, num_workers=2): # HANGS\n    dist.all_reduce(batch)",
        "Blocked",
        state="stopped",
        process="DataLoader worker 0",
    ),
    "hook_of_backward": _rank_1(
        "weight = torch.ones(4, requires_grad=True)\nweight.register_hook(hook)\n(weight * 2).sum().backward()",
        state="sleeping",
        before="def hook(gradient):\n    time.sleep(1000) # HANGS",
    ),
    "store": _rank_1("dist.distributed_c10d._get_default_store().get('a key') # HANGS"),
    "training_thread": Planted(
        "def load():\n    time.sleep(1000) # HANGS\n"
        "def train():\n"
        "    for n in range(9):\n        if n == 3 and RANK == 1: here(); load()\n        dist.all_reduce(values)\n"
        "dist.init_process_group('gloo')\nthread = threading.Thread(target=train)\nthread.start()\nthread.join()\n",
    ),
    "kind": Planted(
        JOIN + "here()\nif RANK:\n    dist.broadcast(values, 0) # HANGS\nelse:\n    dist.all_reduce(values) # HANGS\n",
        "Mismatch",
        guilty=(0, 1),
    ),
    "barrier_in_a_branch": Planted(
        JOIN + "here()\nif RANK == 0:\n    dist.barrier() # HANGS\ndist.all_reduce(values) # HANGS",
        "Mismatch",
        guilty=(0, 1),
    ),
    "uneven_inputs": Planted(
        JOIN + "model = DistributedDataParallel(torch.nn.Linear(4, 4))\n"
        "def train(): \n    for n in range(3 + RANK):\n        model(torch.ones(4, 4)).sum().backward() # HANGS\n"
        "here()\ntrain()\ndist.barrier() # HANGS\n",
        "Mismatch",
        guilty=(0, 1),
    ),
    "unused_parameter": Planted(
        JOIN + "class Two(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)\n"
        "    def forward(self, x): return self.two(self.one(x)) if RANK == 0 else self.one(x)\n"
        "model = DistributedDataParallel(Two())\nhere()\n"
        "model(torch.ones(4, 4)).sum().backward() # HANGS\ndist.barrier() # HANGS\n",
        "Mismatch",
        guilty=(0, 1),
    ),
    "new_group_in_a_branch": Planted(
        JOIN + "here()\nif RANK == 1:\n    dist.new_group([0, 1]) # HANGS\ndist.all_reduce(values)",
    ),
    "sends": Planted(
        JOIN + "here()\nif RANK == 1:\n    dist.recv(values, 0) # HANGS\nelse:\n    dist.barrier() # HANGS\n",
        "Mismatch",
        guilty=(0, 1),
    ),
    "both_receive": Planted(JOIN + "here()\ndist.recv(values, 1 - RANK) # HANGS\n", "Mismatch", guilty=(0, 1)),
    "object_list": Planted(
        JOIN + "here()\nif RANK == 0:\n    dist.broadcast_object_list([1], 0)\n"
        "if RANK == 1:\n    time.sleep(1000) # HANGS\ndist.barrier()\n",
    ),
    "monitored_barrier": Planted(
        JOIN + "import datetime\nhere()\nif RANK == 1:\n    time.sleep(1000) # HANGS\n"
        "dist.monitored_barrier(timeout=datetime.timedelta(seconds=1000))\n",
    ),
    "async_never_waited": Planted(
        JOIN + "here()\nwork = dist.all_reduce(values, async_op=True)\nif RANK == 0:\n    work.wait()\n"
        "    dist.all_reduce(values)\ntime.sleep(1000) # HANGS\n",
    ),
    "never_joins": Planted("here()\nif RANK == 1:\n    time.sleep(1000) # HANGS\n" + JOIN, "NeverJoined"),
    "left_before_new_group": Planted(
        JOIN + "here()\nif RANK == 1: os._exit(0)\ndist.new_group([0, 1, 2])\n", "Left", exited=(1,), size=3
    ),
    "thread_at_exit": Planted(
        JOIN + "here()\ndef upload():\n    time.sleep(1000) # HANGS\n"
        "if RANK == 1: threading.Thread(target=upload).start()\ndist.destroy_process_group()\n",
        "AtExit",
        exited=(0,),
    ),
    "atexit": Planted(
        JOIN + "here()\ndef upload():\n    time.sleep(1000) # HANGS\nif RANK == 1: atexit.register(upload)\n",
        "Blocked",
        exited=(0,),
    ),
    "tensor_and_data_parallel": Planted(
        JOIN + "tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][RANK // 2]\n"
        "data = [dist.new_group([0, 2]), dist.new_group([1, 3])][RANK % 2]\n"
        "def shard(n):\n    if RANK == 3 and n == 2:\n        here()\n        time.sleep(1000) # HANGS\n"
        "for n in range(4):\n    shard(n)\n    dist.all_reduce(values, group=tensor)\n"
        "    dist.all_reduce(values, group=data)\n",
        guilty=(3,),
        size=4,
    ),
}
