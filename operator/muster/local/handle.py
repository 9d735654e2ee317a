# SPDX-License-Identifier: Apache-2.0
"""A cluster that runs: what is known of it, and its components one by one.

Apart from `cluster`, which brings one up by what `existing` and `contents` do: these ask it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from muster.local import components, layout, processes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from muster.local.apiserver import ApiServer
    from muster.local.existing import Existing
    from muster.local.layout import Layout
    from muster.local.options import Options

LOOPBACK = "127.0.0.1"
START_SECONDS = 90.0
MANAGER = "muster-local"
"""Under this name an API server notes what this package wrote."""

_TAIL = 8  # lines

T = TypeVar("T")


class ClusterError(Exception):
    """A cluster could not be brought up; the message says why, with the end of a log."""


class ApiError(ClusterError):
    """The API server refused (`status` is HTTP's), or did not answer (`status` is 0)."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class CredentialsError(ClusterError):
    """A kubeconfig does not say how to speak to its cluster."""


class PortTakenError(ClusterError):
    """Somebody else took the API server's port first."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A local cluster, by its files. `commands`: command line of each program, without flags.

    `existing` is the cluster that was there before; then `port` means nothing.
    """

    files: Layout
    options: Options
    port: int
    commands: dict[str, list[str]]
    existing: Existing | None = None

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self.existing.server if self.existing else f"https://{LOOPBACK}:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.files.kubeconfig

    @property
    def components(self) -> tuple[str, ...]:
        """Names of its components, in the order of their start."""
        return components.wanted(self.options)

    def env(self) -> dict[str, str]:
        """Variables that let kubectl find this cluster, and a shell find kubectl."""
        path = os.pathsep.join([str(self.files.bin), os.environ.get("PATH", os.defpath)])
        return {"KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def ask(self, question: Callable[[ApiServer], Awaitable[T]]) -> T:
        """Ask the API server as administrator. Raises ApiError."""
        return ask(self.access, question)

    @property
    def access(self) -> Path:
        """The kubeconfig by which this package speaks to the API server."""
        return self.kubeconfig if self.existing else self.files.kubeconfig_of(MANAGER)

    def pids(self) -> dict[str, int | None]:
        """Process of each component; None where it does not run."""
        records = {name: processes.read(self.files.pid(name)) for name in self.components}
        return {
            name: one.pid if one and processes.alive(one) else None
            for name, one in records.items()
        }

    def start(self, component: str) -> None:
        """Start a component that does not run. It may need a moment to be of use."""
        with layout.held(self.files.lock):
            if self.pids()[component] is None:
                self.launch(component)

    def stop(self, component: str, *, grace: float = 5.0) -> None:
        """End a component and wait for that; with `grace=0` as if it had crashed."""
        one = processes.read(self.files.pid(component))
        if one:
            processes.stop([one], grace=grace)

    def launch(self, component: str) -> None:
        """Start a component for the holder of the cluster's lock."""
        flags = components.arguments(component, self.files, self.options, self.port)
        processes.start(
            [*self.commands[component], *flags],
            cwd=self.files.home,
            log=self.files.log(component),
            record=self.files.pid(component),
        )

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until the API server calls itself ready; ClusterError if it does not in time."""
        deadline = time.monotonic() + seconds

        async def wait(api: ApiServer) -> None:
            while not await api.ready():
                self.check(components.ETCD, components.API_SERVER)
                if time.monotonic() > deadline:
                    log = self.log_tail(components.API_SERVER)
                    raise ClusterError(f"the API server is not ready in {seconds:.0f} s:\n{log}")
                await asyncio.sleep(0.05)

        self.ask(wait)

    def check(self, *names: str) -> None:
        """Raise ClusterError if one of these components (default: any) has ended."""
        pids = self.pids()
        for name in names or self.components:
            if pids[name] is None:
                log = self.log_tail(name)
                taken = name == components.API_SERVER and "address already in use" in log
                kind = PortTakenError if taken else ClusterError
                raise kind(f"{name} ended. Its last words:\n{log}")

    def log_tail(self, component: str) -> str:
        """End of a component's log."""
        try:
            log = self.files.log(component).read_text(errors="replace")
        except FileNotFoundError:
            return "(none)"
        return "\n".join(log.splitlines()[-_TAIL:])

    def save(self) -> None:
        """Record the cluster as one that was brought up whole."""
        wanted = dataclasses.asdict(self.options)
        record = {"options": wanted, "port": self.port, "commands": self.commands}
        text = json.dumps(record, default=str)  # paths
        fresh = self.files.record.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.files.record)


def ask(kubeconfig: Path, question: Callable[[ApiServer], Awaitable[T]]) -> T:
    """Ask the API server of a kubeconfig. Raises ApiError, CredentialsError."""
    from muster.local import apiserver  # noqa: PLC0415 -- takes a second, and few commands ask

    async def asked() -> T:
        async with apiserver.connected(kubeconfig) as api:
            return await question(api)

    return asyncio.run(asked())
