# SPDX-License-Identifier: Apache-2.0
"""What the operator's account may do for the kinds that not every cluster lets it serve.

Unlike what all jobs need, this may be missing: the jobs concerned say so, the others run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from muster.frameworks.base import Framework
from muster.gang import Permission
from muster.runtime import permissions
from muster.runtime.cache import Cache
from muster.runtime.kube import BROKEN, ApiError, FencedError, Kube

log = logging.getLogger(__name__)

PAUSE: Final = 10.0
"""Seconds until what is missing is asked for again."""


class Grants:
    """The account's permissions for single sets of rules."""

    def __init__(
        self, kube: Kube, cache: Cache, rows: Iterable[Framework], namespaces: Sequence[str]
    ) -> None:
        self._kube, self._cache = kube, cache
        self._rows = [row for row in rows if row.component]
        self._namespaces = namespaces
        self.lacking: Mapping[str, str] = {
            row.operator_name: "its permissions have not been asked for yet" for row in self._rows
        }
        """Operator name -> what is missing, in a sentence; those that may do all are not here."""

    async def look(self) -> None:
        """Ask for what is still missing."""
        left = {row.operator_name: await self._sentence(row) for row in self._open()}
        self.lacking = {name: said for name, said in left.items() if said}

    async def run(self) -> None:
        """Follow what may be followed, for ever, and ask again for what is missing."""
        async with asyncio.TaskGroup() as tasks:
            following = False
            while True:
                may = any(row.batch for row in self._rows if row.operator_name not in self.lacking)
                if may and not following:
                    tasks.create_task(self._cache.follow_batches())
                    following = True
                await asyncio.sleep(PAUSE)
                if self.lacking:
                    await self.look()

    def _open(self) -> list[Framework]:
        return [row for row in self._rows if row.operator_name in self.lacking]

    async def _sentence(self, row: Framework) -> str:
        asked = [Permission(*permission) for permission in row.permissions]
        try:
            missing = await permissions.missing(
                self._kube, permissions.accesses(asked, self._namespaces)
            )
        except ApiError as error:
            log.warning("permissions for %s could not be tried: %s", row.kind, error.message)
            return ""
        except FencedError as error:
            return str(error)
        except BROKEN as error:
            return f"no answer from the API server: {type(error).__name__}: {error}"
        return permissions.told(missing, f"manifests/components/{row.component}")
