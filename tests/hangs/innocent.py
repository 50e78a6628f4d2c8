"""Programs in which no rank prints for a long time, and which do not hang: a rank works, and the others may wait."""

from __future__ import annotations

from tests.hangs.planted import HEAD, JOIN

_WAITS = JOIN + "if RANK == 1: here(); work()\ndist.all_reduce(values)\n"
_SERVER = """
def serve(server, pause):
    connection = server.accept()[0]
    while True:
        connection.send(bytes(1 << 14))
        time.sleep(pause)

def connect(pause=0.05):
    server = socket.create_server(("127.0.0.1", 0))
    if not os.fork():  # the server is no descendant of the rank
        if not os.fork():
            serve(server, pause)
        os._exit(0)
    os.wait()
    return socket.create_connection(server.getsockname())

def download():
    connection = connect()
    for _ in range(10_000):
        connection.recv(1 << 14)
"""


def _rank_1(body: str, before: str = "") -> str:
    lines = "".join(f"    {line}\n" for line in body.strip().split("\n"))
    return f"{HEAD}{before}\ndef work():\n{lines}{_WAITS}"


INNOCENT = {
    "evaluation": _rank_1("while True: torch.rand(300, 300).matmul(torch.rand(300, 300)).sum().item()"),
    "compiler": _rank_1("subprocess.run(['/bin/sh', '-c', 'while :; do :; done'])"),
    "save": _rank_1(
        "tensor = torch.ones(1 << 22)\nwhile True:\n    torch.save(tensor, path)\n    os.sync()\n",
        "path = __file__ + '.save'",
    ),
    "small_writes": _rank_1(
        "file = open(path, 'w')\nwhile True:\n    file.write('x' * 100); file.flush(); os.fsync(file.fileno())\n"
        "    time.sleep(0.2)",
        "path = __file__ + '.log'",
    ),
    "download": _rank_1("download()", _SERVER),
    "download_in_a_thread": _rank_1(
        "concurrent.futures.ThreadPoolExecutor(4).submit(download).result()",
        _SERVER,
    ),
    "downloads_in_threads": _rank_1(
        "pool = concurrent.futures.ThreadPoolExecutor(4)\n"
        "for each in [pool.submit(download) for _ in range(4)]: each.result()",
        _SERVER,
    ),
    "download_by_a_child": _rank_1(
        "process = multiprocessing.get_context('fork').Process(target=download)\nprocess.start()\nprocess.join()",
        _SERVER,
    ),
    "pool": _rank_1(
        "multiprocessing.get_context('fork').Pool(2).map(compute, range(2))",
        "def compute(n):\n    while True: sum(range(10_000))",
    ),
    "compiler_in_a_c_thread": _rank_1(
        "torch.set_num_threads(1)\nthread = threading.Thread(target=lambda: re.match('(a+)+$', 'a' * 60 + 'b'))\n"
        "thread.start()\nthread.join()",
    ),
    "loader": HEAD + "class Data(Dataset):\n    def __len__(self): return 64\n    def __getitem__(self, n):\n"
    "        if n == 9:\n            here()\n            while True: sum(range(10_000))\n"
    "        return torch.ones(4)\n"
    + JOIN
    + "for batch in DataLoader(Data(), batch_size=2, num_workers=2): dist.all_reduce(batch)",
    "all_compute": HEAD + JOIN + "here()\nwhile True: torch.rand(300, 300).matmul(torch.rand(300, 300)).sum().item()",
    "parameter_server": HEAD + JOIN + "here()\nif RANK == 0:\n"
    "    while not os.path.exists(__file__ + '.done'): time.sleep(0.3)\n"
    "while True: sum(range(10_000))",
    "pipeline": HEAD + JOIN + "here()\nif RANK == 0:\n    while True: sum(range(10_000))\ndist.recv(values, 0)",
    "import": HEAD
    + JOIN
    + "here()\nopen(path := __file__ + '.mod.py', 'w').write('sum(i * i for i in range(10 ** 9))')\n"
    "import importlib.util\nspec = importlib.util.spec_from_file_location('m', path)\n"
    "spec.loader.exec_module(importlib.util.module_from_spec(spec))\ndist.all_reduce(values)",
    "gradient_accumulation": HEAD + "model = torch.nn.Linear(300, 300)\n" + JOIN + "here()\n"
    "while True:\n    for _ in range(10_000): model(torch.ones(300, 300)).sum().backward()\n"
    "    dist.all_reduce(values)",
    "steps": HEAD + JOIN + "here()\nwhile True:\n    time.sleep(0.4)\n    dist.all_reduce(values)",
}
