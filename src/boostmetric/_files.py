"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, to write to; it becomes `path` if nothing is raised.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "note")
    >>> with whole(path) as temporary:
    ...     _ = temporary.write_text("done")
    >>> path.read_text()
    'done'
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
