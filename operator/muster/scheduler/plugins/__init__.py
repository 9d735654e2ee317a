# SPDX-License-Identifier: Apache-2.0
"""One module per scheduling plugin; PLUGINS is the table, by the names of a policy file.

Rule: a plugin is a function from a session and its arguments to the hooks it answers. Plugins do
not know each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.scheduler.hooks import Arguments, Hooks, Parsed
from muster.scheduler.plugins import (
    binpack,
    conformance,
    drf,
    fairshare,
    fragmentation,
    gang,
    nodeorder,
    predicates,
    priority,
    proportion,
    quota,
    slowdown,
    topology,
)
from muster.scheduler.session import Session


@dataclass(frozen=True, slots=True)
class Plugin:
    """A row of the table of plugins."""

    answer: Callable[[Session, Parsed], Hooks]
    arguments: Arguments = field(default_factory=dict)


PLUGINS: Final[Mapping[str, Plugin]] = {
    "binpack": Plugin(binpack.answer, binpack.ARGUMENTS),
    "conformance": Plugin(conformance.answer),
    "drf": Plugin(drf.answer),
    "fairshare": Plugin(fairshare.answer, fairshare.ARGUMENTS),
    "fragmentation": Plugin(fragmentation.answer, fragmentation.ARGUMENTS),
    "gang": Plugin(gang.answer),
    "nodeorder": Plugin(nodeorder.answer, nodeorder.ARGUMENTS),
    "predicates": Plugin(predicates.answer, predicates.ARGUMENTS),
    "priority": Plugin(priority.answer),
    "proportion": Plugin(proportion.answer),
    "quota": Plugin(quota.answer),
    "slowdown": Plugin(slowdown.answer, slowdown.ARGUMENTS),
    "topology": Plugin(topology.answer, topology.ARGUMENTS),
}
