# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a job's gang, however soon one after the other: who is passed over is known.

Two processes are shown the same. One passes over gangs of which a look would show nothing, the
other looks at each in every cycle, at all that it is made of.
"""

import itertools
import math
from collections import Counter
from dataclasses import fields

from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster import gang
from muster.allocator import assume, tracker
from muster.allocator.gangs import GangTracker
from muster.allocator.members import GangSettings, JobMembers
from muster.allocator.pending import PendingPods
from muster.allocator.tracker import REPEAT, Bind, Departure, Evict
from muster.allocator.verdict import Cause
from muster.api import edge
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.cluster.dryrun import Answer
from muster.cluster.gangs import GangRules
from muster.controller.model import Refusal
from muster.frameworks import FRAMEWORKS
from muster.scheduler.decision import Decision, Placement, Verdict
from muster.store.store import Store
from support.apiserver.memory import START, tfjob
from support.builders.objects import reference
from support.builders.scheduler import make_node
from support.rehearsal.gang_tracking import Recorded, Shown, evaluated

KEY, HOLD, WAITS = "TFJob/team/mnist", 12.0, 15
SIZE = 4
PLACES = tuple(f"mnist-worker-{index}" for index in range(SIZE + 1))
NODES = ("n1", "n2", "n3")
CAUSE = Cause(DeletionReason.PREEMPT, "TFJob/team/large")

WHAT = (
    *("look", "look"),
    *("come",) * 10,
    *("decide",) * 5,
    *("every",) * 3,
    *("run", "run", "gone", "gone", "again", "again", "waits", "waits"),
    *("fail", "refused", "drain", "drain", "done", "not-bound", "ask", "guest"),
    *("elsewhere", "elsewhere", "scale", "scale", "budget", "budget", "waits"),
    *("silent", "answers", "lose-node", "doubt", "creating", "reborn", "restart"),
    *("refuse", "answer", "answer", "admission", "write", "blocked"),
    *("evict", "evict-all"),
)
SMALL, LARGE = (0.0, 0.0, 0.1, 0.3, 0.5, 0.9, 1.0, 1.5, 2.0), (5.0, 11.0, 31.0, 61.0, 125.0)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(WHAT),
        st.integers(0, len(PLACES) - 1),
        st.integers(0, 3),
        st.sampled_from(SMALL * 4 + LARGE),
        st.sampled_from(["looks", "looks", "misses", "sleeps"]),
    ),
    min_size=12,
    max_size=40,
)
JOBS = st.fixed_dictionaries(
    {
        "minimum": st.sampled_from([None, None, 2, 3]),
        "timeout": st.sampled_from([None, None, WAITS]),
        "expired": st.sampled_from(["keep", "restart", "release"]),
        "tried": st.booleans(),
        "come": st.integers(-1, SIZE),
    }
)


class Anew(GangTracker):
    """Passes nothing over, and reads again all that a gang is made of."""

    def _still(self, key, kind, now):
        """Return nothing: each look may show something else."""

    def facts(self, key, now):
        """Read them anew."""
        for kind in self._kinds:
            for kept in (kind._read, kind._guarded, kind._keys):
                kept.clear()
        return super().facts(key, now)


class Process:
    """One that follows the gang, with a store of its own."""

    def __init__(self, tracker_, clock):
        """Begin with nothing."""
        self.tracker, self.clock = tracker_, clock
        self.store = Store(gang.EMBEDDED, [FRAMEWORKS["TFJob"]])
        self.input, self.seen, self.triggered, self.creating = None, 0, 0, None
        self.start()

    def start(self):
        """Begin to follow, as a process that has just been started."""
        self.effects = Recorded()
        self.members = JobMembers(self.store, self.effects.all.append)
        self.gangs = self.tracker(self.store.columns, (self.members,), self.effects)
        self.store.arrived = self.arrived

    def end(self):
        """End with all that is remembered."""
        if self.memory is not None:
            assume.apply(self.store.columns, "team", self.memory.assumed, {})
        self.input = None

    def arrived(self, pod):
        """Take in a pod on its node."""
        self.triggered += self.gangs.arrived(pod, self.clock.now)

    def look(self, rules):
        """Run a cycle up to where it decides."""
        self.effects.wakes.clear()
        found = evaluated(self.gangs, rules, self.clock.now)
        self.input, self.seen = (found[0] if found else None), self.store.columns.changes

    @property
    def memory(self):
        """What is remembered of the gang."""
        return self.gangs.memory(KEY)

    @property
    def job(self):
        """The job as it is known."""
        return self.store.jobs.get(KEY)

    @property
    def facts(self):
        """What is known at this moment."""
        return self.gangs.facts(KEY, self.clock.now)

    @property
    def due(self):
        """When the next cycle is due by time alone."""
        return min(self.effects.wakes, default=math.inf)


class Story(Shown):
    """A job, its pods and nodes, and both processes."""

    def __init__(self, minimum, timeout, expired, tried, come):
        """Begin with three nodes and a job of four workers.

        `come`: so many of them have come to the nodes that they were given; -1: none was given.
        """
        self.now, self.made = START + 1000.0, itertools.count(1)
        self.product, self.oracle = Process(GangTracker, self), Process(Anew, self)
        self.both = self.product, self.oracle
        self.store = self
        self.rules = GangSettings(GangRules(frozenset({"muster"}), "default"), HOLD, expired)
        self.pods, self.nodes = {}, dict.fromkeys(NODES, True)
        self.lacks_since, self.parted, self.sent, self.evicted = None, set(), Counter(), {}
        self.may_run_at, self.preempted = -math.inf, False
        asked = {"minAvailable": minimum, "scheduleTimeoutSeconds": timeout}
        policy = {"schedulingPolicy": {key: it for key, it in asked.items() if it is not None}}
        self.document = tfjob(Worker=SIZE, policy=policy)
        self.document["metadata"] |= {"uid": "job-uid", "generation": 1}
        self.document["metadata"]["creationTimestamp"] = edge.format_time(START)
        for it in self.both:
            it.store.dry_runs.made = tried
        for name in NODES:
            self.show_node(name)
        self.show(self.document)
        self.look()
        for op in ("answer", "look", "decide", "look") if come >= 0 else ():
            self.do(op, 0, 0)
            self.look()
        for slot in range(come):
            self.do("come", slot, 0)
        self.look()

    def put_both(self, document):
        """Show an object to both."""
        for it in self.both:
            it.store.put(document)

    def show(self, document):
        """Show an object in its next version."""
        self.version += 1
        metadata = {"uid": f"uid-{document['metadata']['name']}", **document["metadata"]}
        metadata["resourceVersion"] = str(self.version)
        self.put_both({**document, "metadata": metadata})

    def show_node(self, name, status="True"):
        """Show a node, which says since now whether it is ready."""
        ready = {"type": "Ready", "status": status, "lastTransitionTime": self.time}
        document = make_node(name=name, cpu=6)
        document["status"]["conditions"] = [ready]
        self.show({"kind": "Node", **document})

    @property
    def time(self):
        """What time it is, as the server writes it."""
        return edge.format_time(self.now)

    # What happens, and when.

    def play(self, step):
        """Let time pass, let one thing happen, and let a cycle look, unless it misses that."""
        what, slot, variant, seconds, looks = step
        end = self.now + seconds
        while looks != "sleeps" and (due := min(it.due for it in self.both)) < end:
            self.now = max(self.now, due)
            self.look()
        self.now = end
        self.do(what, slot, variant)
        if looks != "misses":
            self.look()

    def do(self, what, slot, variant):
        """Let one thing happen."""
        place = PLACES[slot]
        getattr(self, f"op_{what.replace('-', '_')}")(place, self.pods.get(place), variant)
        self.agree(looked=False)
        # The last one to come is looked at as it comes.
        if self.lacks_since is not None and not self.lacks():
            self.lacks_since = None

    def look(self):
        """Let a cycle look, and see to all that must hold."""
        before = self.product.memory
        for it in self.both:
            it.look(self.rules)
        self.agree(looked=True)
        if self.product.memory is not None:
            self.check(before)

    def op_look(self, _place, _pod, _variant):
        """Let nothing happen."""

    def op_ask(self, _place, _pod, _variant):
        """Let somebody ask what is known."""
        found = [it.facts for it in self.both]
        if None not in found:
            product, oracle = found
            assert product == oracle

    def op_every(self, _place, _pod, variant):
        """Let all pods come, or all run."""
        for place in PLACES:
            self.op_come(place, self.pods.get(place), variant)

    # Pods.

    def pod(self, place, *, node, phase="Pending", uid=None, reason="", going=False):
        """Show a pod."""
        it = {"node": node, "phase": phase, "uid": uid or f"u{next(self.made)}", "going": going}
        self.pods[place] = it
        metadata = {
            "name": place,
            "namespace": "team",
            "uid": it["uid"],
            "creationTimestamp": self.time,
            "labels": {
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": place[-1],
            },
            "ownerReferences": [reference(uid=self.document["metadata"]["uid"])],
            **({"deletionTimestamp": self.time} if going else {}),
        }
        spec = {"containers": [], "schedulerName": "muster", "nodeName": node}
        status = {"phase": phase, "reason": reason}
        memories = [it.memory for it in self.both]
        self.show({"kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
        for process, before in zip(self.both, memories, strict=True):
            self.check_arrival(before, process.memory, place, it["uid"])

    def change(self, place, **changes):
        """Show a change of a pod that is there."""
        pod = self.pods[place]
        self.pod(place, **{**pod, **changes})

    def op_come(self, place, pod, variant):
        """Let a pod come to the node that it was given, made for it or bound."""
        memory = self.product.memory
        it = None if memory is None else memory.assumed.get(place)
        if it is None or (pod is not None and (pod["node"] or pod["going"])):
            return
        phase = "Running" if variant else "Pending"
        self.pod(place, node=it.node, phase=phase, uid=pod and pod["uid"])

    def op_elsewhere(self, place, pod, variant):
        """Let a pod come to some node, of an earlier try, say."""
        if pod is None or not pod["node"]:
            going = pod is not None and pod["going"]
            self.pod(place, node=NODES[variant % 3], uid=pod and pod["uid"], going=going)

    def op_waits(self, place, pod, _variant):
        """Let a pod be made without a node."""
        if pod is None:
            self.pod(place, node="")

    def op_run(self, place, pod, _variant):
        """Let a pod run."""
        if pod is not None and pod["node"] and pod["phase"] == "Pending":
            self.change(place, phase="Running")

    def op_done(self, place, pod, _variant):
        """Let a pod succeed."""
        if pod is not None and pod["node"]:
            self.change(place, phase="Succeeded")

    def op_fail(self, place, pod, _variant):
        """Let a pod fail."""
        if pod is not None and pod["node"]:
            self.change(place, phase="Failed")

    def op_refused(self, place, pod, _variant):
        """Let a node turn its pod away."""
        if pod is not None and pod["node"]:
            self.change(place, phase="Failed", reason="OutOfcpu")

    def op_drain(self, place, pod, _variant):
        """Let a pod be deleted that takes its time to end."""
        if pod is not None:
            self.change(place, going=True)

    def op_gone(self, place, pod, _variant):
        """Let a pod be gone."""
        if pod is not None:
            del self.pods[place]
            for it in self.both:
                it.store.gone("Pod", "team", place, pod["uid"])

    def op_again(self, place, pod, variant):
        """Let another pod stand there under the name: where it was, elsewhere or nowhere."""
        if pod is not None:
            node = (pod["node"], *NODES)[variant]
            self.pod(place, node=node, phase="Pending" if variant % 2 else "Running")

    def op_guest(self, place, _pod, variant):
        """Let somebody else's pod take room, or go."""
        name = f"guest-{place[-1]}"
        container = {"name": "c", "resources": {"requests": {"cpu": "4"}}}
        spec = {"containers": [container], "nodeName": NODES[variant % 3]}
        metadata = {"name": name, "namespace": "other"}
        if variant < 3:
            document = {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
            self.show({"kind": "Pod", **document})
        for it in self.both if variant == 3 else ():
            it.store.gone("Pod", "other", name, f"uid-{name}")

    # Nodes.

    def op_silent(self, _place, _pod, variant):
        """Let a node say nothing any more."""
        name = NODES[variant % 3]
        if self.nodes[name]:
            self.show_node(name, "Unknown")

    def op_answers(self, _place, _pod, variant):
        """Let a node answer again, or come back."""
        self.nodes[NODES[variant % 3]] = True
        self.show_node(NODES[variant % 3])

    def op_lose_node(self, place, _pod, variant):
        """Let a node go; sometimes the server is asked."""
        name = NODES[variant % 3]
        self.nodes[name] = False
        for it in self.both:
            it.store.gone("Node", "", name, f"uid-{name}")
            if place != PLACES[0]:
                it.store.confirm_gone(name)

    def op_doubt(self, _place, _pod, variant):
        """Let a node refuse pods of two other jobs."""
        for it, job in itertools.product(self.both, ("a", "b")):
            it.store.suspects.note(NODES[variant % 3], "team", job, self.now, program=False)

    # What the server and the job's controller say.

    def op_budget(self, _place, _pod, variant):
        """Let a disruption budget come, change or go."""
        if variant == 3:
            for it in self.both:
                it.store.gone("PodDisruptionBudget", "team", "b", "uid-b")
            return
        status, metadata = {"disruptionsAllowed": variant}, {"name": "b", "namespace": "team"}
        spec = {"selector": {}}
        document = {"metadata": metadata, "spec": spec, "status": status}
        self.show({"kind": "PodDisruptionBudget", **document})

    def op_refuse(self, place, _pod, variant):
        """Let the server refuse a pod for a while: 403, or 422."""
        reason = "Invalid" if variant == 3 else "Forbidden"
        refusal = Refusal("Pod", place, reason, "no", self.now + (0.5, 1.0, 5.0, 40.0)[variant])
        for it in self.both:
            it.store.jobs.refuse(it.job, refusal)

    def op_answer(self, _place, _pod, variant):
        """Let a dry run be answered that is asked for; the last of them with a refusal."""
        for it in self.both:
            dry_runs = it.store.dry_runs
            for key, _ in list(it.members.asks):
                refused = {"refused": "no", "reason": "Forbidden"} if variant == 3 else {}
                until = self.now + (60.0, 1.0, 0.4, 5.0)[variant]
                dry_runs.put(key, Answer(until, under=dry_runs.changes("team"), **refused))

    def op_admission(self, _place, _pod, _variant):
        """Let something change that admission goes by."""
        for it in self.both:
            it.store.dry_runs.changed("team")

    def op_write(self, _place, _pod, variant):
        """Let the gang's verdict be written, or what stands for one that has begun."""
        verdict = self.product.memory and self.product.memory.verdict
        if verdict is None:
            return
        state = GangPhase.RUNNING if variant == 3 and verdict.state == "Placed" else verdict.state
        written = {"state": state, "reason": verdict.reason, "scheduler": "muster"}
        since = {} if verdict.since is None else {"since": edge.format_time(verdict.since)}
        self.document["status"] = {"gang": {**written, "minMember": verdict.min_member, **since}}
        self.show(self.document)

    def op_blocked(self, _place, _pod, variant):
        """Let something be in the job's way, or no more."""
        said = {"state": "Created" if variant else "Blocked"}
        self.document["status"] = {**self.document.get("status", {}), **said}
        self.show(self.document)

    def op_scale(self, _place, _pod, variant):
        """Let fewer be wanted, or more."""
        self.document["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = variant + 2
        self.document["metadata"]["generation"] += 1
        self.show(self.document)

    def op_creating(self, _place, _pod, variant):
        """Let pods be under way to the server, or no more."""
        for it in self.both:
            (it.store.jobs._creating.add if variant % 2 else it.store.jobs._creating.discard)(KEY)

    def op_reborn(self, _place, _pod, variant):
        """Let the job be deleted and applied again; its pods have another owner then."""
        if variant:
            return
        uid = self.document["metadata"]["uid"]
        self.document["metadata"] |= {"uid": f"job-{next(self.made)}"}
        self.document.pop("status", None)
        for it in self.both if self.now % 2 < 1 else ():
            it.store.gone("TFJob", "team", "mnist", uid)
        self.show(self.document)
        self.forget()

    def op_restart(self, _place, _pod, _variant):
        """Let another process go on."""
        for it in self.both:
            it.end()
            it.start()
        self.forget()
        self.look()

    def forget(self):
        """Expect nothing of what was before."""
        self.lacks_since, self.evicted, self.sent = None, {}, Counter()
        self.preempted = False
        self.may_run_at = -math.inf

    # What is decided.

    def op_decide(self, _place, _pod, variant):
        """Decide as the scheduler would: at least the minimum, or what an admitted one lacks."""
        decisions = [self.decision(it.input, variant) for it in self.both]
        assert decisions[0] == decisions[1]
        decision = decisions[0]
        if decision is None or KEY in self.product.members.untried:
            return
        # Of one that has been refused since, the verdict would be dropped by the next look.
        if any(it.memory.input.refusal is tracker.NOT_NOW for it in self.both):
            return
        done = []
        for it in self.both:
            as_seen = it.gangs.is_as_seen(KEY, self.now)
            done.append(as_seen and it.gangs.accept(decision, self.now, it.seen, 1.0))
            if as_seen and not decision.placements:
                PendingPods(it.gangs, lambda _at: None).show([decision], 100, self.now)
        assert done[0] == done[1]

    def decision(self, seen, variant):
        """Return what is decided of a gang as it was seen."""
        if seen is None or seen.refusal is tracker.NOT_NOW:
            return None
        (role,) = seen.roles
        there = len(role.held) + role.succeeded
        enough = seen.admitted or there + len(role.waiting) >= seen.min_member
        known = [name for name in NODES if self.nodes[name]]
        wanted = role.waiting if enough and known and seen.refusal is None else ()
        chosen = wanted[: 1 if seen.admitted and variant == 3 else None]
        placements = tuple(
            Placement("worker", i, known[(i + variant) % len(known)]) for i in chosen
        )
        state = GangPhase.PLACED if placements or not role.waiting else GangPhase.WAITING
        reason = Reason.NONE if state == GangPhase.PLACED else Reason.NOT_ENOUGH_RESOURCES
        kept = ()
        if state == GangPhase.WAITING and variant == 2 and known:
            state = GangPhase.RESERVED
            kept = tuple(Placement("worker", i, known[0]) for i in role.waiting)
        least, total = seen.min_member, SIZE
        ruling = Verdict(state, reason, "", "", least, there + len(placements), there, total)
        return Decision(KEY, ruling, placements, nominations=kept)

    def op_evict(self, place, pod, variant):
        """Let one pod make room."""
        if pod is not None:
            self.give_back({place}, variant)

    def op_evict_all(self, _place, _pod, variant):
        """Let the whole gang make room."""
        self.give_back(set(PLACES), variant)

    def give_back(self, places, variant):
        """Let go of those of these pods that hold a node."""
        if self.product.memory is None or self.product.memory.released:
            return
        for it in self.both:
            facts = it.facts
            if facts is None:
                return
            holds = {p for p, pod in facts.pods.items() if pod.node and not pod.terminal}
            leavers = holds & places & facts.wanted
            going = frozenset(p for p in leavers if not facts.pods[p].deleting)
            if not going:
                return
            departure = Departure(CAUSE, self.now + (0.5, 1.0, 5.0, 30.0)[variant])
            step = tracker.giving_back(it.memory, facts, going, departure, self.now)
            self.parted |= {facts.pods[p].uid for p in going}
            self.preempted = True
            it.gangs.take(KEY, step)

    def op_not_bound(self, place, _pod, _variant):
        """Let a binding fail."""
        for it in self.both:
            pod = it.store.children.pod("team", place)
            memory = it.memory
            if pod is None or memory is None or place not in memory.facts.wanted:
                continue
            if pod.uid in memory.binding:
                self.sent[pod.uid] = 0
                it.gangs.not_bound(pod, self.now)

    # What must hold.

    def agree(self, *, looked):
        """Fail if both do not know the same, but for who has come."""
        product, oracle = self.both
        assert product.triggered == oracle.triggered
        assert product.store.columns.assumed == oracle.store.columns.assumed
        memory, other = product.memory, oracle.memory
        assert (memory is None) == (other is None)
        if memory is None:
            return
        assert remembered(memory) == remembered(other), differing(memory, other)
        assert product.effects.all == oracle.effects.all
        self.check_effects(product.effects)
        for it in self.both:
            it.effects.all.clear()
        if not looked:
            return
        assert product.members.asks.keys() == oracle.members.asks.keys()
        assert product.members.untried == oracle.members.untried
        if memory.facts is None or product.input is None:
            assert oracle.input == product.input
            return
        assert product.due <= memory.due
        assert memory.facts == other.facts
        assert product.input == oracle.input
        assert self.now < memory.due <= other.due

    def check_effects(self, effects):
        """Nobody is sent or evicted twice without a pause, nor half of a gang."""
        for bind in effects.of(Bind):
            self.sent[bind.pod.uid] += 1
            assert self.sent[bind.pod.uid] == 1
        for evict in effects.of(Evict):
            uid = evict.pod.uid
            assert self.now >= self.evicted.get(uid, -math.inf) + REPEAT
            self.evicted[uid] = self.now
            assert self.product.memory.released or uid in self.parted
            assert self.may_evict(uid, evict.cause)

    def may_evict(self, uid, cause):
        """Return whether the cause of an eviction holds."""
        facts, memory = self.product.memory.facts, self.product.memory
        written = self.document.get("status", {}).get("gang", {}).get("state")
        return {
            DeletionReason.PREEMPT: uid in self.parted or (self.preempted and memory.released),
            DeletionReason.HOLD_EXPIRED: memory.released
            and (facts.gives_up or facts.gives_up_early),
            DeletionReason.RECORDED: memory.released and written == GangPhase.RELEASED,
        }[cause.reason]

    def check_arrival(self, before, after, place, uid):
        """Fail if the room of a place went to a pod that it is not for."""
        it = None if before is None else before.assumed.get(place)
        if it is not None and after is not None and place not in after.assumed:
            pod = self.pods[place]
            assert pod["node"]
            assert uid != it.after

    def check(self, before):
        """Fail if the gang is broken, or keeps what is not to be its."""
        memory, facts = self.product.memory, self.oracle.memory.facts
        taken = {name: node for (_, name), node in self.product.store.columns.assumed.items()}
        assert taken == memory.nodes
        if facts is None or self.product.input is None:
            return
        self.check_room(memory, facts)
        self.check_hold(before, memory, facts)
        forbids = self.oracle.store.budgets.forbid("team", facts.pods.values())
        assert self.product.input.guarded == forbids
        if memory.released:
            assert self.product.input.refusal is tracker.NOT_NOW
            assert {
                p for p, pod in facts.pods.items() if not (pod.deleting or pod.terminal)
            } <= memory.leaving.keys()

    def check_room(self, memory, facts):
        """No room is kept for who is not to come."""
        if memory.released or self.product.input.refusal is tracker.NOT_NOW:
            assert not memory.assumed
        for place, it in memory.assumed.items():
            assert place in facts.wanted
            assert self.nodes[it.node]
            pod = facts.pods.get(place)
            if pod is not None and pod.uid != it.after:
                assert not (pod.node and not pod.terminal)
                assert pod.phase != "Succeeded"
            assert facts.creating or self.now < max(it.since, memory.came_at) + facts.patience

    def lacks(self):
        """Say whether members are missing, by the last look."""
        memory = self.oracle.memory
        facts = memory.facts
        halted = facts.blocked_until == math.inf
        here = facts.ready + facts.ending
        return here < tracker._least(memory, facts) and not halted and bool(facts.tasks)

    def check_hold(self, before, memory, facts):
        """Room of missing members is kept for a hold; then all go, if they are to."""
        whole = before is not None and before.was_whole and before.uid == memory.uid
        if not (whole and self.lacks()):
            self.lacks_since = None
            return
        # The hold counts from the last member that began to terminate or was removed.
        if self.lacks_since is None or facts.ending != before.facts.ending:
            self.lacks_since = self.now
        until, last = facts.blocked_until, before.facts.blocked_until
        if facts.may_run or before.facts.may_run or until > self.now or last > until:
            self.may_run_at = self.now
        over = self.now >= self.lacks_since + HOLD
        if not (memory.was_whole or memory.released):
            # Nobody was left to go.
            assert over
            assert facts.youngest is None
            self.lacks_since = None
            return
        end = self.product.input.hold_until
        assert memory.released or end is not None
        assert over <= (memory.released or end <= self.now)
        stuck = self.now >= max(self.lacks_since, self.may_run_at) + HOLD
        if facts.may_run and not before.released:
            assert not memory.released
        assert (stuck and facts.gives_up) <= (memory.released or facts.may_run)


NOT_COMPARED = frozenset({"facts", "due", "key", "input"})
REMEMBERED = [f.name for f in fields(tracker.GangMemory) if f.name not in NOT_COMPARED]


def remembered(memory):
    """Return what is remembered that somebody decides or writes by."""
    return {name: getattr(memory, name) for name in REMEMBERED}


FRESH = {"minimum": None, "timeout": None, "expired": "keep", "tried": False, "come": -1}
RUNS = FRESH | {"expired": "restart", "tried": True, "come": SIZE}
GROWN = [
    ("decide", 0, 0),
    ("elsewhere", 4, 0),
    ("scale", 0, 3),
    *(("come", i, 0) for i in (2, 3, 0)),
]
REFUSED = [("come", 0, 0), ("refused", 0, 0), *[("look", 0, 0)] * 8]
LATE = [("waits", 0, 0), ("drain", 0, 0), ("decide", 0, 0), ("elsewhere", 0, 0)]


@example(job=FRESH, steps=[(*step, 0.0, "looks") for step in GROWN])
@example(job=FRESH, steps=[(*LATE[0], 0.0, "looks"), *((*it, 0.0, "misses") for it in LATE[1:])])
@example(job=FRESH | {"come": 0}, steps=[(*step, 1.5, "looks") for step in REFUSED])
@example(job=RUNS, steps=[("silent", 0, 0, 0.0, "looks"), ("look", 0, 0, 125.0, "looks")])
@given(job=JOBS, steps=STEPS)
@settings(max_examples=max(1, settings().max_examples * 2 // 3))
def test_as_if_all_were_looked_at(job, steps):
    """What is decided, done and kept is the same, but for who has come within the last second."""
    story = Story(**job)
    for step in steps:
        story.play(step)


def differing(memory, other):
    """Return what differs."""
    mine, others = remembered(memory), remembered(other)
    return [(name, it, others[name]) for name, it in mine.items() if it != others[name]]
