"""`code:` ships no file from outside of its directory, no credentials, and waits for nothing."""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import pytest

from stepset.errors import BadInputError
from stepset.sources import Sources, read_sources
from stepset.sources.code_files import MAX_ENTRIES, MAX_FILES
from stepset.sources.regular_file import read_regular
from stepset.spec import parse_job

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ" + "\n"


def read(base: Path, **job: str) -> Sources:
    return read_sources(parse_job(job or {"module": "train", "code": "code"}), base)


def packed(sources: Sources) -> dict[str, bytes]:
    assert sources.archive is not None
    with tarfile.open(fileobj=io.BytesIO(sources.archive), mode="r:gz") as tar:
        assert all(member.isreg() for member in tar.getmembers())
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}  # type: ignore[union-attr]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A code directory with a script, beside a file that is not part of it."""
    directory = tmp_path / "code"
    (directory / "lib").mkdir(parents=True)
    (directory / "train.py").write_text("x = 1\n", encoding="utf-8")
    (directory / "lib/data.py").write_text("y = 2\n", encoding="utf-8")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("the secret\n", encoding="utf-8")
    return directory


class TestLinks:
    @pytest.mark.parametrize(
        "target", ["../outside/secret.txt", "{base}/outside/secret.txt", "lib/../../outside/secret.txt"]
    )
    def test_to_a_file_outside_are_refused(self, code: Path, target: str) -> None:
        (code / "data.txt").symlink_to(target.format(base=code.parent))
        with pytest.raises(BadInputError, match=r"^code: data\.txt is a link to /.*/outside/secret\.txt, outside of"):
            read(code.parent)

    def test_to_a_directory_outside_are_refused(self, code: Path) -> None:
        (code / "lib/shared").symlink_to("../../outside")
        with pytest.raises(
            BadInputError, match=r"^code: lib/shared is a link to /.*/outside, outside of the directory"
        ):
            read(code.parent)

    def test_that_leave_by_a_chain_are_refused(self, code: Path) -> None:
        (code / "first").symlink_to("second")
        (code / "second").symlink_to("lib/third")
        (code / "lib/third").symlink_to("../../outside/secret.txt")
        with pytest.raises(BadInputError) as caught:
            read(code.parent)
        assert [line.split()[1] for line in caught.value.problems] == ["first", "lib/third", "second"]

    def test_to_a_sibling_with_the_same_prefix_are_refused(self, code: Path) -> None:
        (code.parent / "code-private").write_text("1")
        (code / "data").symlink_to("../code-private")
        with pytest.raises(BadInputError, match="outside of the directory"):
            read(code.parent)

    @pytest.mark.parametrize("target", ["missing", "itself", "/nonexistent/x"])
    def test_that_lead_nowhere_are_refused(self, code: Path, target: str) -> None:
        (code / "itself").symlink_to(target)
        with pytest.raises(
            BadInputError, match=r"^code: itself is a link that leads nowhere \(.+\); remove it, or add"
        ):
            read(code.parent)

    @pytest.mark.parametrize("target", [".", "lib", "{base}/code"])
    def test_to_a_directory_inside_are_refused(self, code: Path, target: str) -> None:
        (code / "lib/again").symlink_to(Path("..") / target.format(base=code.parent))
        with pytest.raises(
            BadInputError, match=r"^code: lib/again is a link to a directory \(.*\); replace it with a copy"
        ):
            read(code.parent)

    def test_to_a_file_inside_are_shipped_as_files(self, code: Path) -> None:
        (code / "main.py").symlink_to("alias.py")
        (code / "alias.py").symlink_to(code / "lib/data.py")
        assert packed(read(code.parent))["main.py"] == b"y = 2\n"

    def test_to_an_ignored_file_are_refused(self, code: Path) -> None:
        (code / ".env").write_text("TOKEN=1")
        (code / ".gitignore").write_text(".env\n")
        (code / "settings").symlink_to(".env")
        with pytest.raises(
            BadInputError, match=r"^code: settings is a link to \.env, which is not shipped; .*\.gitignore"
        ):
            read(code.parent)

    def test_that_are_ignored_do_not_matter(self, code: Path) -> None:
        (code / "data").symlink_to("../outside")
        (code / ".venv").symlink_to("/nonexistent")
        (code / ".stepsetignore").write_text("/data\n")
        assert list(packed(read(code.parent))) == ["lib/data.py", "train.py"]

    def test_the_directory_itself_may_be_one(self, code: Path) -> None:
        (code.parent / "linked").symlink_to(code)
        assert "train.py" in packed(read(code.parent, module="train", code="linked"))


class TestCredentials:
    @pytest.mark.parametrize(
        ("name", "refused"),
        [
            (".env", ".env"),
            ("conf/.env.production", "conf/.env.production"),
            (".ENV", ".ENV"),
            (".aws/credentials", ".aws"),
            ("home/.ssh/known_hosts", "home/.ssh"),
            (".kube/config", ".kube"),
            (".docker/config.json", ".docker/config.json"),
            (".config/gcloud/credentials.db", ".config/gcloud"),
            (".netrc", ".netrc"),
            (".pypirc", ".pypirc"),
            ("id_rsa", "id_rsa"),
            ("id_ed25519", "id_ed25519"),
            ("tls/server.key", "tls/server.key"),
            ("application_default_credentials.json", "application_default_credentials.json"),
        ],
    )
    def test_are_refused_by_their_names(self, code: Path, name: str, refused: str) -> None:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("1")
        with pytest.raises(BadInputError) as caught:
            read(code.parent)
        [line] = caught.value.problems
        assert line.startswith(f"code: {refused} looks like credentials, ")
        assert f"add it to .stepsetignore, or move it out of {code};" in line

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("deploy", KEY),
            ("service.json", '{"private_key": "' + KEY.replace("OPENSSH ", "").replace("\n", "\\n") + '"}'),
            ("server.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"),
            ("old", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"),
            ("conf/credentials.json", '{"client_secret": "x", "type": "authorized_user"}'),
            (".npmrc", "//registry.npmjs.org/:_authToken=x"),
        ],
    )
    def test_are_refused_by_their_content(self, code: Path, name: str, content: str) -> None:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(content)
        with pytest.raises(BadInputError, match=f"^code: {re.escape(name)} looks like credentials"):
            read(code.parent)

    def test_are_no_error_when_they_are_ignored(self, code: Path) -> None:
        (code / ".env").write_text("TOKEN=1")
        (code / "deploy").write_text(KEY)
        (code / ".gitignore").write_text(".env\ndeploy\n")
        sources = read(code.parent)
        assert list(packed(sources)) == ["lib/data.py", "train.py"]
        assert sources.notes == (
            "code: 2 files are ignored because of .gitignore; `stepset explain --files` lists what is shipped",
        )

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            (".env.example", "TOKEN="),
            ("keys.py", 'MARK = "-----BEGIN PRIVATE KEY-----"\n'),
            ("credentials.json", '{"columns": ["a"]}'),
            ("ca.pem", "-----BEGIN CERTIFICATE-----\n"),
            ("keyboard.py", "key = 1"),
        ],
    )
    def test_are_not_suspected_in_other_files(self, code: Path, name: str, content: str) -> None:
        (code / name).write_text(content)
        assert name in packed(read(code.parent))

    def test_all_are_listed_in_one_error(self, code: Path) -> None:
        for number in range(12):
            (code / f"{number:02}.key").write_text("1")
        (code / "link").symlink_to("/etc/passwd")
        with pytest.raises(BadInputError) as caught:
            read(code.parent)
        assert len(caught.value.problems) == 11
        assert caught.value.problems[-1] == "code: 3 more files cannot be shipped"

    def test_are_refused_as_a_script(self, code: Path) -> None:
        (code / "train.sh").symlink_to("key")
        (code / "key").write_text(KEY)
        with pytest.raises(BadInputError, match=r"^script: .*/train\.sh looks like credentials"):
            read(code.parent, script="code/train.sh")


class TestSpecialFiles:
    @pytest.mark.parametrize("kind", ["pipe", "socket"])
    def test_are_refused(self, code: Path, kind: str) -> None:
        if kind == "pipe":
            os.mkfifo(code / "special")
        else:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(code / "special"))
        with pytest.raises(BadInputError, match=r"^code: special is a pipe, socket or device, and cannot be shipped"):
            read(code.parent)

    @pytest.mark.parametrize("name", [".gitignore", ".stepsetignore", "lib/.gitignore"])
    def test_are_refused_as_ignore_files(self, code: Path, name: str) -> None:
        if name != ".gitignore":
            (code / ".gitignore").write_text("")
        (code / name).unlink(missing_ok=True)
        os.mkfifo(code / name)
        with pytest.raises(BadInputError, match="is not a regular file of at most"):
            read(code.parent)

    def test_are_refused_behind_links_and_as_ignore_files_by_links(self, code: Path) -> None:
        (code / "zero").symlink_to("/dev/zero")
        with pytest.raises(BadInputError, match=r"^code: zero is a link to /dev/zero, outside of the directory"):
            read(code.parent)
        (code / ".gitignore").symlink_to("/dev/zero")
        with pytest.raises(BadInputError, match="is not a regular file of at most"):
            read(code.parent)

    @pytest.mark.parametrize("script", ["pipe", "zero"])
    def test_are_refused_as_a_script(self, code: Path, script: str) -> None:
        os.mkfifo(code / "pipe")
        (code / "zero").symlink_to("/dev/zero")
        with pytest.raises(BadInputError, match=r"^script: no such file"):
            read(code.parent, script=f"code/{script}")


class TestFilesThatChange:
    def test_a_file_that_is_replaced_by_a_link_or_pipe_is_not_read(self, code: Path) -> None:
        """The directory was listed when the file was regular."""
        (code / "link").symlink_to("../outside/secret.txt")
        os.mkfifo(code / "pipe")
        assert read_regular(code / "link", 100) is None
        assert read_regular(code / "pipe", 100) is None

    def test_a_file_that_grows_while_it_is_read_is_an_error_or_complete(self, code: Path) -> None:
        ended = threading.Event()

        def write() -> None:
            with (code / "log.txt").open("ab", buffering=0) as file:
                while not ended.is_set():
                    file.write(b"0123456789\n")
                    time.sleep(0)

        (code / "log.txt").write_bytes(b"0123456789\n")
        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(50):
                try:
                    content = packed(read(code.parent))["log.txt"]
                except BadInputError as error:
                    assert re.search(
                        r"^code: /.*/log\.txt changed while it was read; try again|has \d+ bytes", str(error)
                    )
                else:
                    assert content and not len(content) % 11
        finally:
            ended.set()
            thread.join()


class TestHugeDirectories:
    def test_too_many_files_are_refused(self, code: Path) -> None:
        (code / "data").mkdir()
        for number in range(MAX_FILES + 1):
            (code / f"data/{number}").touch()
        with pytest.raises(
            BadInputError, match=rf"has 10003 files; at most {MAX_FILES} .*, most of them in data; add data"
        ):
            read(code.parent)
        (code / ".stepsetignore").write_text("data/*\n")
        assert read(code.parent).notes[0].startswith("code: 10001 files are ignored because of .stepsetignore")

    def test_a_directory_deeper_than_pythons_stack_is_read(self, code: Path) -> None:
        place = os.open(code, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("a", dir_fd=place)
            below = os.open("a", os.O_RDONLY, dir_fd=place)
            os.close(place)
            place = below
        os.close(place)
        try:
            assert list(packed(read(code.parent))) == ["lib/data.py", "train.py"]
        finally:
            subprocess.run(["rm", "-rf", str(code / "a")], check=True)  # shutil.rmtree is recursive

    def test_ignored_files_count_toward_the_limit_of_what_is_looked_at(self, code: Path) -> None:
        (code / ".gitignore").write_text("data/*\n")
        (code / "data").mkdir()
        for number in range(MAX_ENTRIES):
            os.close(os.open(code / f"data/{number}", os.O_CREAT))
        expected = rf"has more than {MAX_ENTRIES} files and directories, most of them in data; add data to \.gitignore"
        with pytest.raises(BadInputError, match=expected):
            read(code.parent)

    def test_the_error_about_the_size_names_the_largest_files(self, code: Path) -> None:
        for name, size in {"a.bin": 900_000, "b.bin": 800_000, "lib/c.bin": 700_000}.items():
            (code / name).write_bytes(os.urandom(size))
        expected = (
            r"the largest files are a\.bin \(900000 bytes\), b\.bin \(800000 bytes\), lib/c\.bin \(700000 bytes\);"
        )
        with pytest.raises(BadInputError, match=rf"{expected} `stepset explain --files` lists all; add data to"):
            read(code.parent).check_shippable()
