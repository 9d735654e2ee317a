# SPDX-License-Identifier: Apache-2.0
"""The operator as a process of a local cluster, which also ends it, with its shipped roles."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from muster.api import manifest
from muster.kube import loops
from muster.kube.client import BROKEN, ApiError, fetch
from muster.local import cluster, contents, kubeconfig, layout, processes
from muster.local.handle import LOOPBACK, Cluster, ClusterError

if TYPE_CHECKING:
    from collections.abc import Sequence


NAME = "muster"
READY_SECONDS = 60.0

_NAMESPACE = "muster-system"
_TOKEN_SECONDS = 7 * 24 * 3600
_PROBE_SECONDS = 2.0
# Of an overlay, all but the CRDs, which are there, and the Deployment: the process plays its part.
_INSTALLED = re.compile(
    r"^kind: (Namespace|ServiceAccount|(Cluster)?Role(Binding)?)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Runner:
    """An operator that was started. `health` is a port of the loopback address."""

    where: Cluster
    health: int

    def check(self) -> None:
        """Raise ClusterError with the end of its output if it has ended."""
        if not processes.alive(processes.read(self.where.files.pid(NAME))):
            raise ClusterError(f"the operator ended. Its last words:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """End of its output."""
        return self.where.log_tail(NAME)

    def wait_ready(self) -> None:
        """Wait until it calls itself ready; ClusterError if it ends or takes too long."""
        loops.run(self._wait_ready())

    async def _wait_ready(self) -> None:
        deadline, answer = time.monotonic() + READY_SECONDS, ""
        while time.monotonic() <= deadline:
            try:
                async with asyncio.timeout(_PROBE_SECONDS):
                    answer = await fetch(f"http://{LOOPBACK}:{self.health}/readyz")
                if answer.partition("\n")[0] == "ok":  # warnings follow in further lines
                    return
            except ApiError as error:
                answer = error.message.strip()
            except BROKEN:
                answer = "it does not answer"
            self.check()
            await asyncio.sleep(0.05)
        seconds = f"{READY_SECONDS:.0f} s ({answer})"
        raise ClusterError(f"the operator is not ready in {seconds}:\n{self.log_tail()}")


def start(where: Cluster, manifests: Path, flags: Sequence[str] = ()) -> Runner:
    """Start the operator, not yet ready, with flags and the roles of an overlay or base."""
    if where.existing:
        contents.require(where.existing)
    made = Runner(where, health=cluster.free_port())
    config = where.files.kubeconfig_of(NAME)
    kubeconfig.write(config, _config(where, _install(where, manifests)))
    argv = [
        *(sys.executable, "-m", "muster", "run", f"--kubeconfig={config}"),
        "--metrics-bind-address=0",
        f"--health-probe-bind-address={LOOPBACK}:{made.health}",
        "--debug-bind-address=0",
        # Where it publishes its policy, as in a Deployment.
        f"--lock-namespace={_NAMESPACE}",
        *flags,
    ]
    with layout.held(where.files.lock):
        # Where Python finds the package, installed or not.
        where.launch(NAME, argv, Path(__file__).parents[2])
    return made


def _install(where: Cluster, manifests: Path) -> str:
    """Give the operator its roles; the answer is a token of its account."""
    documents = where.kubectl("kustomize", str(manifests)).split("\n---\n")
    roles = "\n---\n".join(filter(_INSTALLED.search, documents))
    where.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=roles)
    account = ("muster", f"--namespace={_NAMESPACE}", f"--duration={_TOKEN_SECONDS}s")
    return where.kubectl("create", "token", *account).strip()


def _config(where: Cluster, token: str) -> str:
    """Swap the administrator's credentials for the account's token; JSON is YAML too."""
    config = manifest.document(where.kubeconfig.read_bytes())
    config["users"] = [{"name": "muster", "user": {"token": token}}]
    for context in config["contexts"]:
        context["context"] |= {"user": "muster", "namespace": _NAMESPACE}
    return json.dumps(config, indent=1)
