# SPDX-License-Identifier: Apache-2.0
"""Log lines: one per record, whatever words of other people are in it."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final

_HIDDEN: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),
    *(0x2028, 0x2029),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
"""Characters that move the cursor, end a line, or turn the direction of what follows."""
_SHOWN: Final = {code: ascii(chr(code))[1:-1] for code in _HIDDEN}
_FORMAT: Final = "%(asctime)s %(levelname).1s %(name)s %(message)s"
_MARGIN: Final = "    "
_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LineFormatter(logging.Formatter):
    """Shows control characters by their codes; lines of a traceback do not begin as records do."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- logging's name
        """Return the line of a record."""
        return super().formatMessage(record).translate(_SHOWN)

    def formatException(self, ei: _Raised) -> str:  # noqa: N802 -- logging's name
        """Return a traceback, set in."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(_MARGIN + line.translate(_SHOWN) for line in lines)


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
