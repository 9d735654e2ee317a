# SPDX-License-Identifier: Apache-2.0
"""quota: a gang starts only if its namespace's quotas leave room for all the pods it lacks.

Without it half of the pods could be created, and then keep each other waiting.
"""

from __future__ import annotations

from collections import Counter

from muster.api.reasons import Reason
from muster.scheduler import diagnosis
from muster.scheduler.hooks import Demand, Hooks, Parsed
from muster.scheduler.model import Quota, Refusal
from muster.scheduler.session import Session
from muster.scheduler.state import GangState


def answer(session: Session, _arguments: Parsed) -> Hooks:
    """Keep to what is left of each quota; gangs of one cycle share it."""
    quotas = session.snapshot.quotas

    def affordable(gang: GangState, demand: Demand) -> Refusal | None:
        wanted: Counter[str] = Counter()
        for tasks, count in demand:
            # Only pods still to be created: the API server has charged those that exist.
            fresh = tasks.fresh(count) if tasks.pod_set.charge else 0
            for key, each in tasks.pod_set.charge.items():
                wanted[key] += fresh * each
        # By name: in whatever order a role's charges were told, the answer is the same.
        refusals = filter(None, (refused(gang, key, wanted[key]) for key in sorted(wanted)))
        # What is too much even for all of a quota is told before what others have just now.
        return min(refusals, key=lambda each: each.reason.wants_room, default=None)

    def refused(gang: GangState, key: str, amount: int) -> Refusal | None:
        quota = quotas.get(key)
        if quota is None:
            return None
        # A quota made smaller than its use takes nothing from gangs that want no more of it.
        left = max(quota.hard - quota.used - session.charged[key], 0)
        return _refusal(gang, key, quota, amount, left) if amount > left else None

    return Hooks(affordable=affordable) if quotas else Hooks()


def _refusal(gang: GangState, key: str, quota: Quota, amount: int, left: int) -> Refusal:
    unit = quota.resource.removeprefix("requests.").removeprefix("limits.")
    unit = "storage" if unit.endswith("/requests.storage") else unit
    asks, has, whole = (diagnosis.amount(unit, n) for n in (amount, left, quota.hard))
    by = (f"resourcequota/{quota.name}",)
    name = quota.name.rpartition("/")[2]
    held = sum(len(pod_set.held) * pod_set.charge.get(key, 0) for pod_set in gang.spec.pod_sets)
    # Even with the rest of the namespace gone it would be too much: time does not help.
    if held + amount > quota.hard:
        sentence = (
            f'the gang takes {asks} {quota.resource}, resource quota "{name}" allows {whole}'
        )
        return Refusal(Reason.EXCEEDS_RESOURCE_QUOTA, sentence, blocked_by=by)
    sentence = (
        f"the gang takes {asks} {quota.resource} more, "
        f'{has} of {whole} are left in resource quota "{name}"'
    )
    return Refusal(Reason.NOT_ENOUGH_RESOURCES, sentence, blocked_by=by)
