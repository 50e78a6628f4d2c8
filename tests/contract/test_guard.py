"""The guard of the event loop measures CPU time of the loop's thread, in this process and in others."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.contract import guard

SITE = Path(guard.__file__).with_name("site")


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def calls(function: object, *arguments: object) -> None:
    assert callable(function)
    function(*arguments)


def test_a_callback_over_the_limit_is_found() -> None:
    with guard.callbacks_over(0.05) as found:
        asyncio.run(calls(work, 0.1))
    (line,) = found
    assert "calls()" in line
    assert 0.1 <= float(line.split()[0]) < 0.2


def test_a_blocking_wait_uses_no_cpu_time() -> None:
    with guard.callbacks_over(0.05) as found:
        asyncio.run(calls(time.sleep, 0.2))
    assert found == []


def test_the_cpu_time_of_other_threads_does_not_count() -> None:
    async def waits() -> None:
        other = threading.Thread(target=work, args=(0.2,))
        other.start()
        other.join()

    with guard.callbacks_over(0.05) as found:
        asyncio.run(waits())
    assert found == []


def test_garbage_collection_does_not_count() -> None:
    held = [[number] for number in range(300_000)]
    with guard.callbacks_over(0.0) as found:
        asyncio.run(calls(gc.collect))
    (collected,) = (float(each.split()[0]) for each in found if "calls()" in each)
    began = time.thread_time()
    gc.collect()
    assert collected < (time.thread_time() - began) / 2, len(held)


def test_a_process_of_the_suite_writes_what_blocked_its_loop_to_a_file(tmp_path: Path) -> None:
    code = (
        "import asyncio, time\n"
        "async def works():\n"
        "    end = time.thread_time() + 0.6\n"
        "    while time.thread_time() < end: pass\n"
        "asyncio.run(works())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SITE), guard.VARIABLE: str(tmp_path / "guard")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    (line,) = (tmp_path / "guard").read_text().splitlines()
    found = json.loads(line)
    assert found["seconds"] >= 0.6
    assert "works()" in found["callback"]
