"""The lines of a run that a cell prints, as messages of the kernel."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stdout

from stepset.notebook.display import PART, print_lines


class Messages(io.StringIO):
    """A stream that stores the text between two flushes as one message, as the stdout of a kernel does."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    def flush(self) -> None:
        self.sent.append(self.getvalue())
        self.seek(0)
        self.truncate()


def test_long_lines_are_several_messages_below_the_rate_limit_of_jupyter() -> None:
    lines = [f"{number} {'x' * 2000}" for number in range(500)]
    started = time.monotonic()
    with redirect_stdout(Messages()) as messages:
        print_lines(lines)
    assert "".join(messages.sent) == "".join(f"{line}\n" for line in lines)
    assert max(map(len, messages.sent)) < PART + 3000
    assert time.monotonic() - started > sum(map(len, messages.sent)) / 1_000_000


def test_short_lines_are_one_message_and_no_lines_are_none() -> None:
    with redirect_stdout(Messages()) as messages:
        print_lines([])
        print_lines(["a", "é", "\udc80"])
    assert messages.sent == ["a\né\n\udc80\n"]
