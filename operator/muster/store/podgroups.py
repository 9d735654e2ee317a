# SPDX-License-Identifier: Apache-2.0
"""Existing pods that are ours to place and belong to no job, by gang; and what a gang is of them.

Tasks of such a gang are told apart by their position among its pods, oldest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.api import edge, names
from muster.api.model import GroupView, Json, PodView
from muster.api.owner import Owner
from muster.cluster import podgroups, tables
from muster.cluster.podgroups import Member
from muster.gang import (
    EMBEDDED,
    KUBE_BATCH_OBJECTS,
    KUBERNETES,
    SCHEDULER_PLUGINS,
    VOLCANO,
    GangBackend,
    GroupApi,
)
from muster.kube.collection import EVERYWHERE, Collection, Told, ignore
from muster.store import parse


class ForeignPods:
    """The members of each gang. Every change of one calls `enqueue(key)`."""

    def __init__(self, enqueue: Callable[[str], None]) -> None:
        self.enqueue = enqueue
        self._members: dict[str, dict[str, Member]] = {}
        self._key_of: dict[tuple[str, str], str] = {}
        # By controller, so that a change of a budget costs no look at all gangs.
        self._keys_by: dict[Owner, Counter[str]] = {}
        self._revisions: dict[str, int] = {}
        self._changes = 0

    def __iter__(self) -> Iterator[str]:
        """Yield the keys of all gangs."""
        return iter(self._members)

    def members(self, key: str) -> Sequence[Member]:
        """Return the pods of a gang, oldest first."""
        found = self._members.get(key, {}).values()
        return sorted(found, key=lambda member: (member[0].created, member[0].name))

    def key_of(self, pod: PodView) -> str:
        """Return the key of the pod's gang, empty if it has none."""
        return self._key_of.get((pod.namespace, pod.name), "")

    def keys_by(self, owner: Owner) -> Sequence[str]:
        """Return the keys of the gangs that have pods of that controller."""
        return list(self._keys_by.get(owner, ()))

    def revision(self, key: str) -> int:
        """Return a number that grows with every change of the gang."""
        return self._revisions.get(key, 0)

    def bump(self, key: str) -> None:
        """Take note that something else about the gang has changed."""
        if key in self._members:
            # One count for all: a gang that ends and comes back begins with no number it had.
            self._changes += 1
            self._revisions[key] = self._changes
            self.enqueue(key)

    def changed(self, before: Member | None, after: Member | None) -> None:
        """Take in that a pod came (before None), changed, or went (after None)."""
        if before == after:
            return
        for member, sign in ((before, -1), (after, 1)):
            if member is not None and member[0].owner is not None:
                tables.count(self._keys_by, member[0].owner, member[1].group, sign)
        if before is not None and (after is None or after[1].group != before[1].group):
            self._drop(before)
        if after is not None:
            self._key_of[after[0].namespace, after[0].name] = after[1].group
            tables.put(self._members, after[1].group, after[0].name, after)
            self.bump(after[1].group)

    def _drop(self, member: Member) -> None:
        pod, ask = member
        known = self._members.get(ask.group, {}).get(pod.name)
        # A newer pod may have its name by now, which a late end must not remove.
        if known is not None and known[0].uid == pod.uid:
            self.bump(ask.group)
            self._key_of.pop((pod.namespace, pod.name), None)
            tables.put(self._members, ask.group, pod.name, None)
            if ask.group not in self._members:
                del self._revisions[ask.group]


_OBJECTS: Final = (podgroups.PLUGINS, podgroups.NATIVE)
Changed = Callable[[GroupView | None, GroupView | None], None]
_OF_OLD: Final = KUBE_BATCH_OBJECTS["podgroup"]
LEGACY: Final = "legacy"
OF_VOLCANO: Final = "volcano"
BUDGET: Final = "budget"
SOURCES: Final[Mapping[str, GangBackend]] = {
    LEGACY: replace(
        _OF_OLD, apis=tuple(a for a in _OF_OLD.apis if a.group != EMBEDDED.apis[0].group)
    ),
    OF_VOLCANO: replace(VOLCANO, queues=None),
    podgroups.PLUGINS: SCHEDULER_PLUGINS,
    podgroups.NATIVE: KUBERNETES,
    BUDGET: KUBE_BATCH_OBJECTS["pdb"],
}
"""Beside PodGroups of our own API: where else a group may be."""


class Groups:
    """The group objects of one gang backend, in whichever of its APIs the cluster serves.

    `api` is that API, None unless known to be served; `kept` are its groups. `changed(before,
    after)` follows each change of a group, `turned()` one of the API.
    """

    def __init__(
        self,
        backend: GangBackend,
        namespaces: Sequence[str],
        changed: Changed,
        turned: Callable[[], None],
        unreadable: Told = ignore,
    ) -> None:
        self.backend = backend
        self._unreadable = unreadable
        self.turned = turned
        self.sought = False
        """Has the server been asked for the API?"""
        self._namespaces, self._changed = namespaces, changed
        self._queues: Collection[tuple[str, str]] | None = None
        self.use(None)

    @property
    def missing(self) -> bool:
        """Say whether an API is needed and known not to be served."""
        return bool(self.backend.apis) and self.sought and self.api is None

    @property
    def queues(self) -> Mapping[str, str] | None:
        """State of each of the scheduler's queues by name; None while they are not known."""
        queues = self._queues
        return dict(queues.objects.values()) if queues and queues.complete else None

    def use(self, api: GroupApi | None) -> Collection[GroupView]:
        """Take groups from that API; return where to. None: it is not served, or no more."""
        self.api, self._queues = api, None
        # Anew, not cleared: nothing of another API is left in it.
        self.kept: Collection[GroupView] = Collection(
            parse.group,
            self._changed,
            self._namespaces,
            cautious=parse.unread_group,
            told=self._unreadable,
        )
        return self.kept

    def use_queues(self) -> Collection[tuple[str, str]]:
        """Take the scheduler's queues; return where to."""

        def changed(before: tuple[str, str] | None, after: tuple[str, str] | None) -> None:
            if before != after:
                self.turned()

        self._queues = Collection(_queue, changed, EVERYWHERE)
        return self._queues


class PodGroups:
    """Finds the object of a gang of foreign pods. `own` are the groups of our own API."""

    def __init__(
        self,
        own: Groups,
        namespaces: Sequence[str],
        pods: ForeignPods,
        trigger: Callable[[], None],
        unreadable: Told = ignore,
    ) -> None:
        self._own, self._pods, self._trigger = own, pods, trigger
        self.others: Mapping[str, Groups] = {
            name: Groups(backend, namespaces, self.changed, trigger, unreadable)
            for name, backend in SOURCES.items()
        }
        self._budgets: dict[Owner, GroupView] = {}
        """By their controller."""

    def find(self, key: str) -> GroupView | None:
        """Return the object of the gang, or None."""
        dialect, namespace, name = key.split("/", 2)
        if dialect == podgroups.OWN:
            places = (self._own, self.others[LEGACY], self.others[OF_VOLCANO])
            found = (place.kept.get(namespace, name) for place in places)
            return next(filter(None, found), None)
        if dialect in _OBJECTS:
            return self.others[dialect].kept.get(namespace, name)
        # All pods of such a gang have one controller, which the budget names too.
        members = self._pods.members(key) if self._budgets else ()
        owner = members[0][0].owner if members and dialect != podgroups.LIGHTWEIGHT else None
        return self._budgets.get(owner) if owner else None

    def version(self, group: GroupView) -> str:
        """Return the resourceVersion in which a group is known; empty if it is not."""
        name = group.namespace, group.name, group.uid
        found = (groups.kept.version(*name) for groups in (self._own, *self.others.values()))
        return next(filter(None, found), "")

    def of_volcano(self) -> Iterator[str]:
        """Yield the keys of Volcano's groups."""
        for namespace, name in self.others[OF_VOLCANO].kept.objects:
            yield f"{podgroups.OWN}/{namespace}/{name}"

    def changed(self, before: GroupView | None, after: GroupView | None) -> None:
        """Take in that an object came (before None), changed, or went (after None)."""
        group = after or before
        if group is None or before == after:
            return
        if group.kind == "PodGroup":
            # Gangs of either dialect may have that name. Without one this costs nothing.
            for dialect in (podgroups.OWN, *_OBJECTS):
                self._pods.bump(f"{dialect}/{group.namespace}/{group.name}")
            if group.api_version == names.VOLCANO_API:
                # Its controller may wait for the phase before it creates pods.
                self._pods.enqueue(f"{podgroups.OWN}/{group.namespace}/{group.name}")
        elif owners := {it.owner for it in (before, after) if it and it.owner}:
            for owner in owners:
                self._budgets.pop(owner, None)
                if after is not None and after.owner == owner:
                    self._budgets[owner] = after
                for key in self._pods.keys_by(owner):
                    self._pods.bump(key)
        else:
            return
        self._trigger()


def _queue(document: Json) -> tuple[str, str]:
    """Return name and state of a queue; one without a state is new, and open."""
    status = edge.mapping(document.get("status"))
    return document["metadata"]["name"], edge.text(status.get("state")) or "Open"
