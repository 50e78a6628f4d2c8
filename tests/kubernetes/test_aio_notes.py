"""A run that the asynchronous API starts on a cluster has the notes of one that the synchronous API starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepset import aio
from stepset.backends.base import ClusterOptions
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig
from tests.kubernetes.stored_objects import StoredObjects
from tests.local.conftest import RecordingListener


def test_a_cancellation_that_the_cluster_refuses_states_that_the_run_may_still_run(tmp_path: Path) -> None:
    listener = RecordingListener()

    async def run() -> None:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])

        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            if method == "DELETE":
                return 403, {"kind": "Status", "message": "refused", "code": 403}
            return objects.answer(method, path, query)

        async with ApiServer(answer) as server:
            options = ClusterOptions(kubeconfig(tmp_path, server.port), namespace="ns")
            job = {"command": ["true"], "image": "image", "name": "refused"}
            running = asyncio.create_task(aio.run(job, "kubernetes", listener=listener, cluster=options))
            while not listener.statuses and not running.done():
                await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await running
            name = listener.statuses[0].name
            explained = caught.value._render_traceback_()  # type: ignore[attr-defined]  # what IPython shows
            call = f"stepset.cancel('{name}', 'kubernetes')"
            assert explained == [f"CancelledError: run {name} may still run; cancel it with {call}"]

    asyncio.run(run())


def test_the_notes_name_variables_of_the_shell_that_the_run_does_not_get_and_checkpoints_that_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hidden-value")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "train.py").write_text("")
    listener = RecordingListener()

    async def run() -> None:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])
        async with ApiServer(objects.answer) as server:
            options = ClusterOptions(kubeconfig(tmp_path, server.port), namespace="ns")
            job = {"script": "train.py", "image": "image", "checkpoint_dir": "/tmp/checkpoints"}
            running = asyncio.create_task(
                aio.run(job, "kubernetes", base_dir=tmp_path, listener=listener, cluster=options)
            )
            while not listener.statuses and not running.done():
                await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await running
            explained = caught.value._render_traceback_()  # type: ignore[attr-defined]  # what IPython shows
            assert explained == [f"CancelledError: run {listener.statuses[0].name} was cancelled"]

    asyncio.run(run())
    [note] = [note for note in listener.statuses[0].notes if note.startswith("env: ")]
    assert "WANDB_API_KEY" in note
    assert "hidden-value" not in note
    assert any(note.startswith("checkpoint_dir: /tmp/checkpoints is not on") for note in listener.statuses[0].notes)
