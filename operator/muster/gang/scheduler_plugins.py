# SPDX-License-Identifier: Apache-2.0
"""The coscheduling plugin of scheduler-plugins, under whatever name it is installed."""

from __future__ import annotations

from muster.api import names
from muster.gang import base, demand, standing
from muster.gang.model import Field, Link, Permission
from muster.gang.podgroup import MANAGE, group_api

_GROUP = names.SCHEDULER_PLUGINS_API.partition("/")[0]

SCHEDULER_PLUGINS = base.GangBackend(
    name="scheduler-plugins",
    apis=(
        group_api(
            names.SCHEDULER_PLUGINS_API,
            Field("minMember", standing.minimum_from_one, "minAvailable"),
            Field("minResources", demand.resources, "minResources"),
            Field("scheduleTimeoutSeconds", demand.timeout, "scheduleTimeoutSeconds"),
        ),
    ),
    cure=(
        f"PodGroup of {names.SCHEDULER_PLUGINS_API} comes with scheduler-plugins: install its "
        "CRDs, or choose another --gang-scheduler-name"
    ),
    permissions=(Permission(_GROUP, "podgroups", MANAGE),),
    mark=lambda job, _: Link(labels={names.SCHEDULER_PLUGINS_GROUP: names.flat(job.name)}),
    # Its controller's PodGroup status counts same-named groups of all namespaces, so the pods
    # are the better witness.
    read=base.by_pods,
)
