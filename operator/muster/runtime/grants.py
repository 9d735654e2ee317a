# SPDX-License-Identifier: Apache-2.0
"""What the operator's account may do that not every cluster lets it do.

Unlike what all jobs need, this may be missing: jobs of the kinds concerned say so, the others run.
Without the limits of nodes for volumes, nobody counts these, and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from muster.api import names
from muster.frameworks.base import Framework
from muster.gang import Permission
from muster.runtime import permissions
from muster.runtime.kube import BROKEN, ApiError, FencedError, Kube
from muster.store.informers import Informers

log = logging.getLogger(__name__)

PAUSE: Final = 10.0
"""Seconds until what is missing is asked for again."""


class Grants:
    """The account's permissions for single sets of rules."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        rows: Iterable[Framework],
        namespaces: Sequence[str],
    ) -> None:
        self._kube, self._informers, self._store = kube, informers, informers.store
        self._rows = [row for row in rows if row.component]
        self._namespaces = namespaces
        self.lacking: Mapping[str, str] = {
            row.operator_name: "its permissions have not been asked for yet" for row in self._rows
        }
        """Operator name -> what is missing, in a sentence; those that may do all are not here."""
        self._blind = "" if not self._store.backend.embedded else "not asked for yet"
        """What is missing to know how many volumes nodes take, in a sentence."""

    async def look(self) -> None:
        """Ask for what is still missing."""
        self.lacking, self._blind = await self._asked()

    async def run(self) -> None:
        """Follow what may be followed, for ever, and ask again for what is missing."""
        async with asyncio.TaskGroup() as tasks:
            following = set[str]()
            lacking, blind = self.lacking, self._blind
            while True:
                fresh = self._readable(lacking, blind) - following
                made = [each for kind in fresh for each in self._informers.grant(kind)]
                for informer in made:
                    tasks.create_task(informer.run())
                # Jobs that may go on now are not to take what they have for gone.
                for informer in made:
                    await informer.synced.wait()
                following |= fresh
                self.lacking, self._blind = lacking, blind
                await asyncio.sleep(PAUSE)
                if self.lacking or self._blind:
                    lacking, blind = await self._asked()

    async def _asked(self) -> tuple[Mapping[str, str], str]:
        left = {row.operator_name: await self._row(row) for row in self._open()}
        blind = self._blind
        if blind:
            component = "embedded" if self._store.frameworks else "scheduler"
            blind = await self._sentence(
                self._store.backend.optional, "limits of volumes", component
            )
            if blind and blind != self._blind:
                log.warning("how many volumes each node takes is not looked at: %s", blind)
        return {name: said for name, said in left.items() if said}, blind

    def _readable(self, lacking: Collection[str], blind: str) -> set[str]:
        batch = any(row.batch for row in self._rows if row.operator_name not in lacking)
        limits = self._store.backend.embedded and not blind
        return {kind for kind, may in ((names.BATCH_JOB, batch), (names.CSI_NODE, limits)) if may}

    def _open(self) -> list[Framework]:
        return [row for row in self._rows if row.operator_name in self.lacking]

    async def _row(self, row: Framework) -> str:
        asked = [Permission(*permission) for permission in row.permissions]
        return await self._sentence(asked, row.kind, row.component)

    async def _sentence(self, asked: Iterable[Permission], purpose: str, component: str) -> str:
        try:
            missing = await permissions.missing(
                self._kube, permissions.accesses(asked, self._namespaces)
            )
        except ApiError as error:
            log.warning("permissions for %s could not be tried: %s", purpose, error.message)
            return ""
        except FencedError as error:
            return str(error)
        except BROKEN as error:
            return f"no answer from the API server: {type(error).__name__}: {error}"
        return permissions.told(missing, f"manifests/components/{component}")
