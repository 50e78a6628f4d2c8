"""Directories that a job has written can be measured and deleted, however deep, odd or hostile they are."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from stepset.backends.local.runs.run_dir import RunDir
from stepset.directory_trees import Cursor, UndeletableError, delete_tree
from stepset.functions.module import source_with_modules
from stepset.requirements.install import _delete
from tests.cli.conftest import STEPSET
from tests.functions.test_extract import packed
from tests.security.deep_trees import DEEP, PROGRAM, make_deep
from tests.security.other_users import program

pytestmark = pytest.mark.local

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user and make files immutable")
OTHER = 65533
"""The uid of another user."""


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Limits the number of open descriptors of this process to four more than are open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 4, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    directory = tmp_path / "tree"
    directory.mkdir()
    return directory


class TestATree:
    @pytest.mark.parametrize(("levels", "name"), [(DEEP, "d"), (2 * DEEP, "n" * 200)])
    def test_of_any_depth_is_deleted_with_few_descriptors(self, tree: Path, levels: int, name: str) -> None:
        make_deep(tree, levels, name)
        with few_descriptors():
            delete_tree(tree)
        assert not tree.exists()

    def test_of_any_depth_is_measured_with_few_descriptors(self, tree: Path) -> None:
        make_deep(tree, 2 * DEEP, "n" * 200)
        with few_descriptors():
            size = RunDir(tree).disk_usage()
        blocks = subprocess.run(["du", "-s", "--block-size=1", tree], capture_output=True, text=True, check=True).stdout
        assert size == int(blocks.split()[0])
        delete_tree(tree)

    def test_with_names_that_are_no_text_is_deleted(self, tree: Path) -> None:
        below = tree / os.fsdecode(b"\xff\n\x1b[31m") / os.fsdecode(b"\xfe")
        below.mkdir(parents=True)
        (below / "file").touch()
        assert RunDir(tree).disk_usage() > 0
        delete_tree(tree)
        assert not tree.exists()

    def test_that_contains_links_is_deleted_without_their_targets(self, tree: Path) -> None:
        outside = tree.parent / "outside"
        (outside / "kept").mkdir(parents=True)
        (tree / "link").symlink_to(outside)
        (tree / "nowhere").symlink_to("missing")
        os.mkfifo(tree / "pipe")
        delete_tree(tree)
        assert (outside / "kept").exists() and not tree.exists()

    def test_that_is_a_link_is_not_deleted(self, tree: Path) -> None:
        (tree / "kept").touch()
        link = tree.parent / "link"
        link.symlink_to(tree)
        with pytest.raises(UndeletableError, match=r"link cannot be deleted: is no longer a directory: 'link'$"):
            delete_tree(link)
        assert (tree / "kept").exists()

    def test_whose_folders_become_links_is_deleted_without_their_targets(self, tree: Path) -> None:
        outside = tree.parent / "outside"
        outside.mkdir()
        (outside / "kept").touch()
        (tree / "a" / "folder").mkdir(parents=True)
        over = threading.Event()

        def swap() -> None:
            folder, link, aside = (tree / "a" / name for name in ("folder", "link", "aside"))
            while not over.is_set():
                with suppress(OSError):
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    folder.mkdir(exist_ok=True)
                    folder.rename(aside)
                    folder.symlink_to(outside)
                    folder.rename(link)
                    aside.rename(folder)
                    link.unlink()

        swapping = threading.Thread(target=swap)
        swapping.start()
        try:
            for _ in range(300):
                tree.mkdir(exist_ok=True)
                with suppress(UndeletableError):
                    delete_tree(tree)
                assert (outside / "kept").exists()
        finally:
            over.set()
            swapping.join()

    def test_that_is_moved_away_during_the_deletion_is_an_error(self, tree: Path) -> None:
        (tree / "a" / "b").mkdir(parents=True)
        with closing(Cursor(tree)) as cursor:
            cursor.enter("a")
            cursor.enter("b")
            (tree / "a" / "b").rename(tree.parent / "moved")
            with pytest.raises(OSError, match="was moved while it was read"):
                cursor.leave()

    def test_that_does_not_exist_is_no_error(self, tree: Path) -> None:
        delete_tree(tree / "missing")

    @ROOT
    @pytest.mark.parametrize("mode", ["0o000", "0o500"])
    def test_without_permissions_is_deleted_by_its_owner(self, tmp_path: Path, mode: str) -> None:
        done = as_other(
            tmp_path,
            "import os; from pathlib import Path; from stepset.directory_trees import delete_tree\n"
            f"os.umask(0); tree = Path('tree'); (tree / 'a' / 'b').mkdir(parents=True)\n"
            f"(tree / 'a' / 'b' / 'file').touch(); (tree / 'a' / 'b').chmod({mode}); (tree / 'a').chmod({mode})\n"
            "delete_tree(tree); assert not tree.exists()",
        )
        assert (done.returncode, done.stderr) == (0, "")

    @ROOT
    def test_of_another_user_is_one_error_and_all_else_is_deleted(self, tmp_path: Path) -> None:
        (tmp_path / "tree" / "foreign" / "below").mkdir(parents=True)
        (tmp_path / "tree" / "other").mkdir()
        (tmp_path / "tree" / "file").touch()
        (tmp_path / "tree" / "foreign").chmod(0o000)
        (tmp_path / "tree").chmod(0o777)
        done = as_other(
            tmp_path,
            "from pathlib import Path; from stepset.directory_trees import discard_tree\ndiscard_tree(Path('tree'))",
        )
        assert done.stderr == "tree cannot be deleted: Permission denied: 'foreign'\n"
        assert [each.name for each in (tmp_path / "tree").iterdir()] == ["foreign"]

    @ROOT
    def test_with_a_mounted_file_system_is_one_error_and_the_file_system_stays_unchanged(self, tree: Path) -> None:
        (tree / "mounted").mkdir()
        delete = (
            "import sys; from pathlib import Path; from stepset.directory_trees import discard_tree;"
            " discard_tree(Path(sys.argv[1]))"
        )
        script = f'mount -t tmpfs none "$1"/mounted && touch "$1"/mounted/kept && "$0" -c "{delete}" "$1"'
        script += ' && ls "$1"/mounted'
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, sys.executable, tree], capture_output=True, text=True
        )
        if "denied" in done.stderr or "not permitted" in done.stderr:
            pytest.skip("root may not mount file systems here")
        assert done.stdout == "kept\n"
        assert done.stderr == f"{tree} cannot be deleted: Device or resource busy: 'mounted'\n"


def as_other(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a directory as another user, who may write to the directory."""
    directory.chmod(0o777)
    user = {"user": OTHER, "group": OTHER, "extra_groups": []}
    return subprocess.run(program(code), cwd=directory, capture_output=True, text=True, **user)


def stepset(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STEPSET_HOME": str(home)}
    return subprocess.run([STEPSET, *words], env=env, cwd=home, text=True, capture_output=True, timeout=120)


def started(home: Path, code: str, **fields: object) -> subprocess.CompletedProcess[str]:
    """Starts a local run of a program that can call `deep`. The program's `run` is the directory of the run."""
    text = f"{PROGRAM}\nrun = {str(home / 'runs')!r} + '/' + os.environ['STEPSET_RUN']\n{code}\n"
    job = home / "job.yaml"
    job.write_text(json.dumps({"name": "deep", "command": [sys.executable, "-c", text], **fields}))
    return stepset(home, "run", str(job))


def expired(home: Path) -> Path:
    """Changes the end of the only run so that its ttl is over. Returns the directory of the run."""
    (run,) = (home / "runs").iterdir()
    state = json.loads((run / "state.json").read_text(encoding="utf-8"))
    (run / "state.json").write_text(json.dumps({**state, "finished": state["finished"] - 100}), encoding="utf-8")
    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    return directory


@pytest.fixture
def immutable(home: Path) -> Iterator[Path]:
    """A file in the directory of an expired run that root cannot delete either."""
    assert started(home, "os.mkdir(run + '/x'); open(run + '/x/file', 'w').close()", ttl="1m").returncode == 0
    file = expired(home) / "x" / "file"
    if subprocess.run(["chattr", "+i", file], capture_output=True).returncode:
        pytest.skip("the file system has no immutable files")
    yield file
    subprocess.run(["chattr", "-i", file], capture_output=True)


class TestADeepFolder:
    def test_in_a_runs_directory_hinders_no_later_command(self, home: Path) -> None:
        assert started(home, "deep(run)", ttl="1m").returncode == 0
        run = expired(home)
        listed = stepset(home, "list", "--disk-usage", "-o", "json")
        assert (listed.returncode, listed.stderr) == (0, "")
        pruned = stepset(home, "prune")
        assert (pruned.returncode, pruned.stdout, pruned.stderr) == (0, f"{run.name}\n", "stepset: deleted 1 run\n")
        assert not run.exists()

    def test_is_deleted_when_the_next_run_starts(self, home: Path) -> None:
        assert started(home, "deep(run)", ttl="1m").returncode == 0
        run = expired(home)
        assert started(home, "").returncode == 0
        assert not run.exists()

    def test_is_deleted_with_the_run_of_a_name(self, home: Path) -> None:
        assert started(home, "deep(run)").returncode == 0
        (run,) = (home / "runs").iterdir()
        assert stepset(home, "delete", run.name).returncode == 0
        assert not run.exists()

    def test_in_a_pods_directory_does_not_prevent_the_restart(self, home: Path) -> None:
        code = "import sys\nif os.environ['STEPSET_ATTEMPT'] == '0': deep(run + '/pods/node-0'); sys.exit(1)"
        done = started(home, code, restart={"max_restarts": 1})
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr

    def test_in_the_directory_of_shipped_modules_is_deleted_at_exit(self, tmp_path: Path) -> None:
        code = source_with_modules(f"{PROGRAM}\ndeep(sys.path[0])", packed("helper.py", ""))
        env = {**os.environ, "TMPDIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", "import sys\n" + code], env=env, capture_output=True, text=True)
        assert (done.returncode, done.stderr, [*tmp_path.iterdir()]) == (0, "", [])

    def test_in_an_interrupted_installation_is_deleted(self, tree: Path) -> None:
        make_deep(tree)
        _delete(str(tree))
        assert not tree.exists()


@ROOT
class TestARunThatCannotBeDeleted:
    def test_is_one_line_of_each_command_and_stays_in_the_list(self, home: Path, immutable: Path) -> None:
        run = immutable.parents[1]
        for _ in range(2):
            pruned = stepset(home, "prune")
            note, count = pruned.stderr.splitlines()
            assert (pruned.returncode, pruned.stdout, count) == (0, "", "stepset: deleted 0 runs")
            assert note.startswith(f"{run} cannot be deleted: Operation not permitted: 'file'; ")
        (listed,) = json.loads(stepset(home, "list", "-o", "json").stdout)["items"]
        assert listed["name"] == run.name
        deleted = stepset(home, "delete", run.name)
        assert (deleted.returncode, deleted.stdout, len(deleted.stderr.splitlines())) == (3, "", 1)
        later = started(home, "print('trained')")
        assert (later.returncode, later.stderr.count("cannot be deleted")) == (0, 1)
        names = stepset(home, "list", "-o", "name").stdout.split()
        (other,) = {*names} - {run.name}
        both = stepset(home, "delete", *names)
        first, note = both.stderr.splitlines()
        assert (both.returncode, first) == (3, f"stepset: deleted {other}")
        assert note.startswith(f"stepset: {run} cannot be deleted: ")
        subprocess.run(["chattr", "-i", immutable], check=True)
        assert stepset(home, "prune").stdout == f"{run.name}\n"
