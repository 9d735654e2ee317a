# SPDX-License-Identifier: Apache-2.0
"""Forty faults that somebody could make, in the words of what users would see.

A fault is planted by replacing texts, each of which stands in the package exactly once, wherever
that is. Code that is rewritten gets another way to plant the same fault beside the ways there
are, so that trees from before and after are measured by the same faults. A fault must change what
is done: one that nobody could ever notice measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Edit = tuple[str, str]
"""(text that is there, text in its place)"""
Way = Sequence[Edit]
"""Edits that make the fault together."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    ways: tuple[Way, ...]
    """The first of which all texts are there is planted."""


def _fault(name: str, *ways: Way) -> Fault:
    return Fault(name, ways)


TRACKER: Final = (
    _fault(
        "a hold never ends",
        [
            ("end = self.broken_since + hold", "end = self.broken_since + 1000 * hold"),
            ("end = self._broken_since + hold", "end = self._broken_since + 1000 * hold"),
        ],
        [
            (
                "end = (turn.now if since is None else since) + (facts.patience",
                "end = (turn.now if since is None else since) + 1000 * (facts.patience",
            )
        ],
    ),
    _fault(
        "a gang that begins anew does not give up its pods",
        [("named = pods if self.released else self.leaving", "named = self.leaving")],
        [
            ("        leaving=_all_leave(turn, departure.cause),\n", ""),
            (
                "leaving={} if over else _all_leave(turn, memory.cause)",
                "leaving={} if over else memory.leaving",
            ),
        ],
    ),
    _fault(
        "a promise lapses at once",
        [("if now < oldest + limit:", "if now < oldest:")],
        [("+ facts.patience\n", "+ 0.0\n")],
    ),
    _fault(
        "a gang whose promises lapsed does not rest",
        [
            ("self.rests_until = now + REST", "self.rests_until = now"),
            ("self._rests_until = now + REST", "self._rests_until = now"),
        ],
        [("turn.remember(rests_until=turn.now + REST)", "turn.remember(rests_until=turn.now)")],
    ),
    _fault(
        "nodes that others were evicted from are not kept",
        [
            (
                "nominated[name] for i, name in called.items() if name in nominated",
                "nominated[name] for i, name in ()",
            )
        ],
        [
            (
                "kept[place] for i, place in wanting if place in kept",
                "kept[place] for i, place in ()",
            )
        ],
    ),
    _fault(
        "others are evicted before anything says for whom",
        [
            ("return now >= end", "return True"),
            ("return now >= state.announced + TELLING", "return True"),
        ],
        [("return turn.now >= asked[1] + within", "return True")],
    ),
    _fault(
        "the pause between two tries does not grow",
        [
            ("min(FIRST_RETRY * 2.0 ** (count - 2), LAST_RETRY)", "FIRST_RETRY"),
            ("min(FIRST_RETRY * 2.0 ** (count - 1), LAST_RETRY)", "FIRST_RETRY"),
        ],
        [("min(FIRST_RETRY * 2.0 ** (count - 2), LAST_RETRY)", "FIRST_RETRY")],
    ),
    _fault(
        "a pod is sent to its node again and again",
        [("if not there and pod.uid not in state.binding:", "if not there:")],
        [
            (
                "if pod is not None and _waits(pod) and pod.uid not in memory.binding:",
                "if pod is not None and _waits(pod):",
            )
        ],
    ),
    _fault(
        "a gang of other people's pods is whole with one member missing",
        [
            (
                "whole = ready + len(self.promises.nodes) >= terms.minimum",
                "whole = ready + len(self.promises.nodes) >= terms.minimum - 1",
            )
        ],
        [("need=terms.minimum,", "need=terms.minimum - 1,")],
    ),
    _fault(
        "a PodGroup that keeps its members when the hold is over begins anew",
        [("return left if wanted in GIVES_UP else ()", "return left")],
        [("return (terms.on_hold_expired in GIVES_UP,) * 2", "return (True,) * 2")],
    ),
)
"""What is remembered of gangs between two cycles."""

SCHEDULER: Final = (
    _fault(
        "a gang that does not fit keeps what it got",
        [("whole = self.rules.ready(job) or self.rules.pipelined(job)", "whole = True")],
        [("whole = starts or self.rules.pipelined(gang)", "whole = True")],
    ),
    _fault(
        "room in one resource is taken for room in all",
        [
            (
                "np.maximum((free // self._request).min(axis=1), 0)",
                "np.maximum((free // self._request).max(axis=1), 0)",
            )
        ],
        [
            ("np.minimum(least, more, out=least)", "np.maximum(least, more, out=least)"),
            (
                "np.maximum((free[:, columns] // request[columns]).min(axis=1), 0)",
                "np.maximum((free[:, columns] // request[columns]).max(axis=1), 0)",
            ),
        ],
    ),
    _fault(
        "the youngest gang goes first",
        [
            (
                "return self.rules.job_order(job), gang.created, gang.uid, gang.key",
                "return self.rules.job_order(job), -gang.created, gang.uid, gang.key",
            )
        ],
        [
            (
                "return self.rules.job_order(gang), spec.created, spec.uid, spec.key",
                "return self.rules.job_order(gang), -spec.created, spec.uid, spec.key",
            )
        ],
    ),
    _fault(
        "the lowest priority goes first",
        [
            (
                "job_order=lambda job: -job.gang.priority,",
                "job_order=lambda job: job.gang.priority,",
            )
        ],
        [
            (
                "job_order=lambda gang: -gang.spec.priority,",
                "job_order=lambda gang: gang.spec.priority,",
            )
        ],
    ),
    _fault(
        "preempt takes higher priorities",
        [
            (
                "lower = victims.priority < gang.priority",
                "lower = victims.priority != gang.priority",
            ),
            ("words = np.sign(gang.priority - victims", "words = (gang.priority != victims"),
        ],
        [
            (
                "lower = victims.priority < spec.priority",
                "lower = victims.priority != spec.priority",
            ),
            ("answers = np.sign(spec.priority - victims", "answers = (spec.priority != victims"),
        ],
    ),
    _fault(
        "reclaim takes from a queue what is its due",
        [
            (
                "(line.allocated[columns] - due[columns] * (1 - EXACT)).tolist()",
                "line.allocated[columns].tolist()",
            )
        ],
        [
            (
                "(queue.allocated[columns] - due[columns] * (1 - EXACT)).tolist()",
                "queue.allocated[columns].tolist()",
            )
        ],
        [
            (
                "left = queue.allocated[columns] - self.due(queue)[columns] * (1 - EXACT)",
                "left = queue.allocated[columns]",
            )
        ],
    ),
    _fault(
        "who passes by delays the gang that has a reservation",
        [("return self.room.until is not None and tasks.ends > self.room.until", "return False")],
    ),
    _fault(
        "a gang leaves the domain that it must not leave",
        [
            (
                "return _regions(session, levels, job, across=not required)",
                "return _regions(session, levels, job, across=True)",
            )
        ],
        [
            (
                "return _regions(session, levels, gang, across=not required)",
                "return _regions(session, levels, gang, across=True)",
            )
        ],
        [
            (
                "if not party.asked.required:\n        yield None",
                "if party:\n        yield None",
            )
        ],
    ),
    _fault(
        "binpack takes the emptiest node",
        [("total * (values * parts).sum(axis=1)", "-total * (values * parts).sum(axis=1)")],
    ),
    _fault(
        "the weights of queues do not count",
        [("np.array([q.weight for q in queues], np.float64)", "np.ones(len(queues))")],
        [("np.array([queue.weight for queue in every], np.float64)", "np.ones(len(every))")],
    ),
)
"""What is decided in a cycle."""

CLUSTER: Final = (
    _fault("taints are not looked at", [("for taint in node.taints:", "for taint in ():")]),
    _fault(
        "pods on nodes keep nobody away by anti-affinity",
        [('apart=_apart(spec, metadata) if "affinity" in spec else (),', "apart=(),")],
    ),
    _fault(
        "pods on the host's network hold no host ports",
        [('if port.get("hostPort") or host', 'if port.get("hostPort")')],
    ),
    _fault(
        "two claims get the same volume",
        [
            (
                "(v for v in self._choice(claim) if v.name not in taken)",
                "(v for v in self._choice(claim))",
            )
        ],
    ),
    _fault(
        "pods about to be created take nothing of a quota",
        [("used=found[key].used + amount)", "used=found[key].used)")],
    ),
    _fault(
        "what init containers ask for is not looked at",
        [
            (
                "return _larger(peak, running) if peak else running",
                "return running",
            )
        ],
    ),
    _fault(
        "nobody expects the room of terminating pods",
        [("self._nodes.releasing[slot] += sign * request", "pass")],
    ),
    _fault(
        "a disruption budget that allows nothing allows one",
        [
            (
                'allowed=int(status.get("disruptionsAllowed") or 0),',
                'allowed=int(status.get("disruptionsAllowed") or 1),',
            )
        ],
    ),
)
"""What of the cluster the scheduler is shown."""

CONTROLLER: Final = (
    _fault(
        "ExitCode does not restart a pod whose exit code nobody knows",
        [
            (
                "retryable = code is None or code >= FIRST_RETRYABLE",
                "retryable = code is not None and code >= FIRST_RETRYABLE",
            )
        ],
        [
            (
                "return code is not None and code < FIRST_RETRYABLE",
                "return code is None or code < FIRST_RETRYABLE",
            )
        ],
    ),
    _fault(
        "backoffLimit allows one restart more",
        [("return total >= max(limit, 1)", "return total > max(limit, 1)")],
    ),
    _fault(
        "the TTL counts from the job's creation",
        [
            (
                "or job.run_policy.suspend else done + ttl",
                "or job.run_policy.suspend else job.created + ttl",
            )
        ],
        [("return max(done, status.taken_over_time or done) + ttl", "return job.created + ttl")],
    ),
    _fault(
        "cleanPodPolicy Running takes the pods that have ended as well",
        [
            (
                "if policy == names.CleanPodPolicy.RUNNING:\n        return pod.terminal",
                "if policy == names.CleanPodPolicy.RUNNING:\n        return False",
            )
        ],
    ),
    _fault(
        "the restarts of before a suspension count after it",
        [
            (
                "        replicas={},\n        restarts_in_a_row=0,\n",
                "        restarts_in_a_row=0,\n",
            )
        ],
    ),
    _fault(
        "the deadline counts from the job's creation",
        [
            (
                "or framework.limits_itself else start + allowed",
                "or framework.limits_itself else job.created + allowed",
            )
        ],
        [
            (
                "or framework.life.limits_itself else start + allowed",
                "or framework.life.limits_itself else job.created + allowed",
            )
        ],
        [("None if begun is None else begun + allowed", "job.created + allowed")],
    ),
    _fault(
        "a condition's time of transition moves with its reason",
        [("new = replace(new, transitioned=old.transitioned)", "pass")],
    ),
    _fault(
        "a job of successPolicy AllWorkers ends with its first worker",
        [('return job.options["successPolicy"] != "AllWorkers" and any(', "return any(")],
    ),
    _fault(
        "TF_CONFIG takes every dynamic worker for the first",
        [('"worker": {str(index): own}', '"worker": {"0": own}')],
    ),
    _fault(
        "minAvailable does not reach the PodGroup",
        [
            (
                "return job.total - facts.later if lowered(job, facts) else asked",
                "return job.total - facts.later",
            )
        ],
        [("return there if lowered(job, facts) else asked", "return there")],
        [("facts.minimum if asked is None else asked", "facts.minimum")],
    ),
    _fault(
        "quantities are rounded down",
        [("-(-value.numerator // value.denominator)", "value.numerator // value.denominator")],
    ),
    _fault(
        "only the name of the first pod is checked for its length",
        [("r.pod_name(job.name, max(r.replicas - 1, 0))", "r.pod_name(job.name, 0)")],
    ),
)
"""What becomes of a job and its objects."""

ROOMS: Final = {
    "tracker": TRACKER,
    "scheduler": SCHEDULER,
    "cluster": CLUSTER,
    "controller": CONTROLLER,
}
