# SPDX-License-Identifier: Apache-2.0
"""What the operator publishes for commands: its policy, and by its Lease that it runs."""

from __future__ import annotations

import time
from typing import Final

from muster.allocator import policyfile
from muster.allocator.policyfile import PolicyFile
from muster.api import edge
from muster.api.edge import mapping
from muster.commands.checks import Lease
from muster.kube import resources
from muster.kube.client import ApiError, Kube
from muster.kube.leaderelection import LEASES
from muster.scheduler.policy import Policy, PolicyError
from muster.settings import Settings

HOME: Final = "muster-system"
"""The usual namespace of the operator."""


async def read(kube: Kube, settings: Settings) -> tuple[Policy, Settings, str]:
    """Return the operator's policy, the settings with its values, and why they are unknown.

    The command line takes precedence. Raises PolicyError, OSError, connection errors.
    """
    own = PolicyFile(settings.scheduler_conf).get()
    namespace = settings.policy_namespace or HOME
    name = f"{namespace}/{policyfile.NAME}"
    try:
        found = await kube.get(resources.CONFIG_MAPS.path(namespace, policyfile.NAME))
        chosen, values = policyfile.published(mapping(found.get("data")))
    except (ApiError, PolicyError) as error:
        text = error.message if isinstance(error, ApiError) else str(error)
        used = "the given" if settings.scheduler_conf else "the built-in"
        return own, settings, f"ConfigMap {name}: {text}; {used} policy is used"
    return own if settings.scheduler_conf else chosen, settings.completed(values), ""


async def now(kube: Kube) -> float:
    """Return the time by the server's clock, or by this machine's. Raises connection errors."""
    try:
        return await kube.clock() or time.time()
    except ApiError:
        return time.time()


async def operator_problem(kube: Kube, settings: Settings) -> str:
    """Return why the operator does not run, empty if it runs. Raises connection errors."""
    namespace, name = settings.lock_namespace or HOME, settings.leader_election_id
    try:
        lease = Lease.of(await kube.get(LEASES.path(namespace, name)))
    except ApiError as error:
        return f"it is unknown whether the operator runs: {error.message}"
    if lease.fresh(await now(kube)):
        return ""
    at = edge.format_time(lease.renewed)
    return f"the operator does not run: the {lease} was last renewed {at}"
