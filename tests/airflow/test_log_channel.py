"""It is known how far a triggerer has come with what its triggers have logged."""

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
from stepset_airflow.triggerer.log_backpressure import all_read, unread

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
asyncio.run(asyncio.wait_for(all_read(), 60))
seen.append(unread())
triggerer.close()
triggers.close()
print(json.dumps(seen))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what waits in a socket")
def test_what_is_logged_is_unread_until_the_main_process_has_all_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_TRIGGERER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    at_first, logged, half_read, at_last = json.loads(done.stdout)
    assert (at_first, at_last) == (0, 0)
    assert logged >= half_read > 0


def test_where_logs_go_another_way_nothing_is() -> None:
    assert unread() == 0
