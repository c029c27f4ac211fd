"""The process that computes one cell, started by `cells.Processes`.

    python -m boostmetric_paper.experiments.worker CELL LIMIT MEMORY

CELL is JSON, LIMIT is in CPU seconds, MEMORY in GB. The last line printed is the record, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import warnings

from boostmetric_paper.experiments.cells import Cell
from boostmetric_paper.experiments.registry import EXPERIMENTS
from boostmetric_paper.peers import limit_process, versions


def _exit_with_parent() -> None:
    """Wait until the parent closes the other end of standard input, then kill this group."""
    os.read(0, 1)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main(cell: str, limit: str, memory: str) -> None:
    """Compute a cell and print its record."""
    warnings.simplefilter("ignore")
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    limit_process(float(limit), float(memory))
    wanted = Cell(**json.loads(cell))
    record = EXPERIMENTS[wanted.experiment].run(wanted)
    print(json.dumps({"versions": versions("boostmetric"), **record}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
