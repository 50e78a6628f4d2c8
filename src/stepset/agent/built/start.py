"""The code of the built file outside TEXT, which contains the modules. tools/build_agent.py sets TEXT."""

from __future__ import annotations

import marshal
import os
import sys
from typing import Any

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#,%&()*+-;<=>?@^_`{|}~"
"""The digits of Python's base85, with a comma in place of `$`, because some tools replace `$NAME` in manifests."""

TEXT = "@TEXT@"
CODES = b""
"""The marshalled codes of the modules, in the compiled copy of the built file."""

_sources: dict[str, str] = {}


def read_sources() -> dict[str, str]:
    """Returns a mapping from the name of each module to its source.

    Python's base64.b85decode would take longer, because base64 imports re.
    """
    if not _sources:
        import struct
        import zlib

        each = iter(TEXT.encode().translate(bytes.maketrans(DIGITS.encode(), bytes(range(85)))))
        words = [(((a * 85 + b) * 85 + c) * 85 + d) * 85 + e for a, b, c, d, e in zip(each, each, each, each, each)]
        packed = zlib.decompressobj().decompress(struct.pack(f">{len(words)}I", *words))
        texts = packed.decode().replace("\t", "    ").split("\0")
        _sources.update(zip(texts[::2], texts[1::2]))
    return _sources


def start() -> None:
    """Runs the agent, and exits with its exit code."""
    if sys.argv[1:2] == ["run"]:
        # The kernel discards a signal to process 1 of a container if this process has no handler for the signal.
        # Therefore the signals are blocked until the event loop of the agent can handle them.
        try:
            import _signal as signal  # type: ignore[import-not-found]  # faster than signal
        except ImportError:
            import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    codes = marshal.loads(CODES) if CODES else {}
    name = "stepset.agent.bundle"
    code = marshal.loads(codes[name]) if codes else compile(read_sources()[name], "stepset/agent/bundle.py", "exec")
    module: dict[str, Any] = {"__name__": name}
    exec(code, module)
    bundle = module["install"](__file__, read_sources, codes)
    from stepset.agent.command_line import main

    os._exit(main(sys.argv[1:], bundle))


if __name__ == "__main__":
    start()
