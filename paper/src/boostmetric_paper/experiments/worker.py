"""The process that computes one cell; `cells.Processes` starts it.

python -m boostmetric_paper.experiments.worker CELL LIMIT MEMORY

CELL is JSON, LIMIT seconds of the processor, MEMORY a number of gigabytes. The last line printed is
what was found, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import warnings

from boostmetric.cli import peer
from boostmetric_paper.experiments.cells import Cell
from boostmetric_paper.experiments.registry import EXPERIMENTS


def _end_with_parent() -> None:
    """Wait until nothing holds the other end of the standard input, then end this group."""
    os.read(0, 1)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main(cell: str, limit: str, memory: str) -> None:
    """Compute and print."""
    warnings.simplefilter("ignore")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    peer.limit_memory(float(memory))
    peer.limit_time(float(limit))
    wanted = Cell(**json.loads(cell))
    found = EXPERIMENTS[wanted.experiment].run(wanted)
    print(json.dumps({"versions": peer.versions("boostmetric"), **found}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
