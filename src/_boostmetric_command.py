"""The console script `boostmetric`.

It is a module next to the package because importing any part of `boostmetric` imports all of it,
which takes a second or two. Ctrl-C during that time ends the command without a traceback.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


def main() -> int:
    """Import the command line, run it, and return its exit code."""
    with quiet_ctrl_c():
        from boostmetric.cli import main as run
    return run()


@contextmanager
def quiet_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process with exit code 130 at once: there is nothing to clean up yet.

    An exception could get lost in an import. If Ctrl-C is ignored (nohup), it stays so.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda signum, frame: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
