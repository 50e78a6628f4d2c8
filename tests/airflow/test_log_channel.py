"""How many log entries of its triggers the main process of a triggerer has not read yet."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from stepset_airflow.triggerer.log_backpressure import unread

pytestmark = pytest.mark.airflow

IN_A_TRIGGERER = """
import asyncio, json, os, socket, threading, time
import structlog
from airflow.sdk.execution_time.supervisor import _configure_logs_over_json_channel
from stepset_airflow.triggerer.log_backpressure import wait_until_read, unread

triggers, triggerer = socket.socketpair()
_configure_logs_over_json_channel(os.dup(triggers.fileno()))
log = structlog.get_logger(logger_name="stepset_airflow.triggers.distributed_train")
seen = [unread()]
log.info("a line")
seen.append(unread())
triggerer.recv(10)
seen.append(unread())

def read_the_rest():
    time.sleep(0.5)
    triggerer.recv(4096)

reader = threading.Thread(target=read_the_rest)
reader.start()
asyncio.run(asyncio.wait_for(wait_until_read(), 60))
seen.append(unread())
triggerer.close()
triggers.close()
print(json.dumps(seen))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the unread bytes of a socket")
def test_log_entries_are_unread_until_the_main_process_has_read_them_all() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_TRIGGERER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    at_first, logged, half_read, at_last = json.loads(done.stdout)
    assert (at_first, at_last) == (0, 0)
    assert logged >= half_read > 0


def test_nothing_is_unread_without_a_log_channel() -> None:
    assert unread() == 0
