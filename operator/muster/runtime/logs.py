# SPDX-License-Identifier: Apache-2.0
"""Log lines: one per record, whatever words of other people are in it."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname).1s %(name)s %(message)s"
_MARGIN: Final = "    "
_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LineFormatter(logging.Formatter):
    """Shows control characters by their codes; lines of a traceback do not begin as records do."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- logging's name
        """Return the line of a record."""
        return _shown(super().formatMessage(record))

    def formatException(self, ei: _Raised) -> str:  # noqa: N802 -- logging's name
        """Return a traceback, set in."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(_MARGIN + _shown(line) for line in lines)


def _shown(line: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def begin(verbosity: int) -> None:
    """Log to the standard error from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    level = logging.DEBUG if verbosity >= 4 else logging.INFO
    logging.basicConfig(level=level, handlers=[handler])
    for noisy in ("asyncio", "aiohttp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # What ends Kopf is told in a line where it begins anew.
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
