# SPDX-License-Identifier: Apache-2.0
"""One scheduling cycle, from a snapshot to decisions."""

from __future__ import annotations

from muster.scheduler import verdicts
from muster.scheduler.actions import ACTIONS
from muster.scheduler.actions.keep import keep, resume
from muster.scheduler.actions.protect import protect
from muster.scheduler.decision import Decision
from muster.scheduler.model import Snapshot
from muster.scheduler.policy import Policy
from muster.scheduler.session import Around, Session, unwatched


def schedule(
    snapshot: Snapshot, policy: Policy, around: Around = unwatched
) -> tuple[Decision, ...]:
    """Return one decision for every gang that is not whole, in the order to be carried out.

    Equal snapshots give equal decisions, whatever the order of their gangs. `around` is entered
    for the work of each action and each plugin, for somebody to measure it; it changes nothing.
    """
    if not any(gang.missing or gang.ready < gang.min_member for gang in snapshot.gangs):
        return ()
    session = Session(snapshot, policy.openers(around))
    protect(session)
    keep(session)
    resume(session, [ACTIONS[name].run for name in policy.actions if ACTIONS[name].evicts])
    for action in policy.actions:
        with around("action", action):
            ACTIONS[action].run(session, policy.arguments.get(action, {}))
    return verdicts.decisions(session)
