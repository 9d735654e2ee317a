# SPDX-License-Identifier: Apache-2.0
"""A gang as the allocator follows it, on a store that is shown objects and a clock that stands."""

import math
from dataclasses import replace

from muster import frameworks, gang
from muster.allocator import tracker
from muster.allocator.gangs import GangTracker
from muster.allocator.members import GangSettings, JobMembers, PodGroupMembers
from muster.allocator.tracker import Assumed
from muster.cluster.gangs import GangRules
from muster.controller import reconcile
from muster.controller.model import Context
from muster.gang import GangFacts
from muster.kube.resources import OF_KIND
from muster.store import observe


class Shown:
    """Shows objects to its `store`, each in its next version."""

    version = 0

    def put(self, document):
        """Show an object; return it as it was put in."""
        self.version += 1
        metadata = {"uid": f"uid-{document['metadata']['name']}", **document["metadata"]}
        known = OF_KIND.get(document["kind"], gang.EMBEDDED.apis[0])
        about = {"apiVersion": known.api_version, **document}
        document = {**about, "metadata": {**metadata, "resourceVersion": str(self.version)}}
        self.store.put(document)
        return document


class Recorded:
    """Does nothing of what is to be done, and remembers it."""

    def __init__(self):
        """Begin with nothing."""
        self.all, self.wakes = [], []

    def wake(self, at):
        """Remember when a cycle is wanted, if ever."""
        self.wakes += [at] if at < math.inf else []

    def carry_out(self, effects):
        """Remember these."""
        self.all += effects

    def of(self, kind):
        """Return those of one kind, since the last look."""
        return [effect for effect in self.all if isinstance(effect, kind)]


class Watched(GangTracker):
    """Asserts that of each gang that is passed over a look would have shown nothing new."""

    looked = frozenset()

    def evaluate(self, settings, now):
        """Evaluate those that may have changed."""
        self.looked = set()
        yield from super().evaluate(settings, now)
        asked = self._asked()
        for key, memory in self:
            if key not in self.looked:
                assert now < memory.due
                # Not as the tracker knows them: that is what is in question.
                facts = self._kind_of[key].facts(key, memory, now)
                assert facts is memory.facts, key
        assert self._asked() == asked

    def _asked(self):
        return [set(getattr(kind, "asks", ())) for kind in self._kinds]

    def _look(self, key, now):
        self.looked = {*self.looked, key}
        return super()._look(key, now)


def evaluated(gangs, settings, now):
    """Return the gangs of a tracker of which something is placed here."""
    return [gang for gang in gangs.evaluate(settings, now) if gang is not None]


class NoStrangers:
    """No objects but those that watches have shown."""

    def children(self, *_about):
        """Return nothing."""
        return ()

    pods = children


def tracked(store):
    """Return the tracker of all gangs of a store, which does nothing of what is to be done."""
    return GangTracker(store.columns, (JobMembers(store), PodGroupMembers(store)), Recorded())


def reconcile_all(store, now):
    """Reconcile every job of a store, without writing anything."""
    context = Context(gangs=GangFacts(priorities=store.priorities))
    for job in store.jobs:
        rules = frameworks.of(job)
        seen = observe.observe(store, NoStrangers(), job, rules, now)
        reconcile.reconcile(seen, rules, store.backend, context)


class Following:
    """Follows one gang."""

    def __init__(self, store, members, key, scheduler, now, hold=120.0, expired="keep"):
        """Begin at that time; `hold` and `expired` are the operator's flags."""
        self.store, self.key, self.now = store, key, now
        self.settings = GangSettings(GangRules(frozenset({scheduler}), "default"), hold, expired)
        self.effects = Recorded()
        self.members = members(store)
        self.gangs = Watched(store.columns, (self.members,), self.effects)
        store.arrived = lambda pod: self.gangs.arrived(pod, self.now)

    @property
    def memory(self):
        """What is remembered of the gang."""
        return self.gangs.memory(self.key)

    @property
    def wakes(self):
        """When cycles are wanted, since the last look."""
        return sorted(set(self.effects.wakes))

    def look(self, seconds=0.0):
        """Let time pass and return the gang that the next cycle sees."""
        self.now += seconds
        self.effects.all, self.effects.wakes = [], []
        found = evaluated(self.gangs, self.settings, self.now)
        said, wakes = list(self.effects.all), list(self.effects.wakes)
        # Once more, so that whatever happens next happens to a gang that is passed over.
        evaluated(self.gangs, self.settings, self.now)
        self.effects.all, self.effects.wakes = said, wakes
        return found[0] if found else None

    def set(self, **changes):
        """Have something remembered."""
        self.gangs.remember(self.key, replace(self.memory, due=0.0, **changes))

    def assume(self, nodes):
        """Give pods their nodes."""
        shape = self.memory.facts.tasks[0].shape
        made = {place: Assumed(node, shape, self.now) for place, node in nodes.items()}
        self.set(assumed={**self.memory.assumed, **made})

    def assumed(self):
        """Return the assumed pods, which are the same as the room that is taken for them."""
        taken = {name: node for (_, name), node in self.store.columns.assumed.items()}
        assert taken == self.memory.nodes
        return taken

    def give_back(self, places, departure):
        """Let pods go."""
        facts = self.gangs.facts(self.key, self.now)
        going = frozenset(places)
        self.gangs.take(
            self.key, tracker.giving_back(self.memory, facts, going, departure, self.now)
        )

    def going(self):
        """Return the names of the pods that are to go, and for whom."""
        return {place: it.cause for place, it in self.memory.leaving.items()}
