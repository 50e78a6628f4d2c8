"""Runs a credential plugin with limits: `plugin_program.py SECONDS COMMAND [ARGUMENT...]`.

This file is a program that needs only the standard library. A separate process can end at the deadline, even if a
descendant of the plugin keeps the plugin's pipes open.
"""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
import threading

_MAX_OUTPUT = 1 << 20
"""The maximum number of bytes of the ExecCredential."""
_MAX_ERRORS = 1 << 14
"""The maximum number of characters of standard error that are shown."""
_LAST_OUTPUT = 1.0
"""The number of seconds after the end of the plugin in which its last output is read."""


def main(seconds: float, command: list[str]) -> int:
    """Runs the command and copies its output. Returns the exit code of this program."""
    try:
        plugin = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except (OSError, ValueError) as error:
        _show(f"{command[0]}: cannot be started: {getattr(error, 'strerror', None) or error}")
        return 127
    output = bytearray()
    threads = [threading.Thread(target=each, args=(plugin, output), daemon=True) for each in (_read, _copy_errors)]
    for thread in threads:
        thread.start()
    try:
        code = plugin.wait(seconds)
    except subprocess.TimeoutExpired:
        plugin.kill()
        _show(f"{command[0]}: did not end within {seconds:g} s")
        return 124
    for thread in threads:
        thread.join(_LAST_OUTPUT)
    if len(output) > _MAX_OUTPUT:
        _show(f"{command[0]}: printed more than {_MAX_OUTPUT} bytes")
        return 125
    sys.stdout.buffer.write(output)
    return code if code >= 0 else 128 - code


def _read(plugin: subprocess.Popen[bytes], output: bytearray) -> None:
    assert plugin.stdout is not None
    while data := os.read(plugin.stdout.fileno(), 1 << 16):
        output += data
        if len(output) > _MAX_OUTPUT:
            plugin.kill()
            return


def _copy_errors(plugin: subprocess.Popen[bytes], _: bytearray) -> None:
    assert plugin.stderr is not None
    decoder, left = codecs.getincrementaldecoder("utf-8")("replace"), _MAX_ERRORS
    while data := os.read(plugin.stderr.fileno(), 1 << 12):
        text = decoder.decode(data)
        _show(text[:left], end="")
        left = max(0, left - len(text))


def _show(text: str, end: str = "\n") -> None:
    """Prints a text without control sequences, which could change the user's terminal."""
    safe = "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)
    os.write(2, (safe + end).encode("utf-8", "replace"))


if __name__ == "__main__":
    code = main(float(sys.argv[1]), sys.argv[2:])
    sys.stdout.flush()
    os._exit(code)  # a thread may still read the pipe of a descendant
