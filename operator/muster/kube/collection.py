# SPDX-License-Identifier: Apache-2.0
"""The objects of one resource, each in its newest version, on whichever way that came."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from typing import Final, Generic, TypeVar

from muster.api.model import Json, Unreadable

log = logging.getLogger(__name__)
EVERYWHERE: Final = ("",)
"""The namespaces of a collection that is followed in all of them, or that has none."""
_UNREAD: Final = -1
T = TypeVar("T")
Key = tuple[str, str]
"""(namespace, name)."""
Told = Callable[[Json, Unreadable], None]
"""Takes in that an object cannot be read: what an event about it names, and why."""
LONGEST_REASON: Final = 200


def ignore(*_news: object) -> None:
    """Do nothing: the default for a callback."""


class Collection(Generic[T]):
    """Objects, parsed once per version, with a callback per change; it needs no client.

    `parse` makes the value that is kept; `changed(before, after)` is called at every change, with
    None for absent. What it raises, foreseen or not, is that object's trouble alone: `cautious`
    makes the value then (without it the object is left out). `unread` returns why a value was
    read only in part, or an empty text. In both cases `told` is called once for each reason.
    `carry(before, after)` returns the value to keep of a later version. The
    answer to a write can be put in at once by `apply`: older versions that the watch brings later
    are ignored, and so is the answer about an object whose end the watch has shown before.
    """

    def __init__(
        self,
        parse: Callable[[Json], T],
        changed: Callable[[T | None, T | None], None],
        namespaces: Sequence[str] = EVERYWHERE,
        *,
        cautious: Callable[[Json, Unreadable], T] | None = None,
        told: Told = ignore,
        unread: Callable[[T], str] = lambda _value: "",
        carry: Callable[[T, T], T] = lambda _before, after: after,
    ) -> None:
        self.namespaces = tuple(namespaces)
        """Those that are followed, each by a list and a watch of its own."""
        self.objects: dict[Key, T] = {}
        self._versions: dict[Key, tuple[str, int]] = {}
        self.reached = dict.fromkeys(self.namespaces, _UNREAD)
        """Per followed namespace: the version up to which list and watch have shown all."""
        self._gone: dict[Key, tuple[str, int]] = {}
        """uid and last version of those whose end a write has shown, and no list or watch yet."""
        self.unreadable: dict[Key, Unreadable] = {}
        """Those that cannot be read as they are now."""
        self._parse, self._changed = parse, changed
        self._cautious, self._told, self._unread = cautious, told, unread
        self._carry = carry

    @property
    def complete(self) -> bool:
        """Say whether all that is followed has been listed, so that what is not here is gone."""
        return _UNREAD not in self.reached.values()

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object of that name, or None."""
        return self.objects.get((namespace, name))

    def version(self, namespace: str, name: str, uid: str) -> str:
        """Return the version in which the object with that uid is known; empty if it is not."""
        of, version = self._versions.get((namespace, name), ("", _UNREAD))
        return str(version) if of == uid and version > 0 else ""

    def apply(self, document: Json) -> None:
        """Take in the answer to a write, unless what is known is newer, be it the absence.

        What is in a namespace that is not followed is left out: nothing would show its end.
        """
        key, uid, version = _identity(document)
        if key in self._versions:
            self._take(key, uid, version, document)
            return
        reached = self.reached.get(self._space(key))
        # Nothing is known of it: either the watch has not come as far, or it has shown its end.
        if reached is not None and version > reached:
            self._take(key, uid, version, document)

    def take(self, document: Json, listed: int | None = None) -> Key:
        """Store what a watch, or a list of version `listed`, shows, unless newer is known.

        Returns its key. If a watch is ahead of the list, an unknown object has ended since.
        """
        key, uid, version = _identity(document)
        reached, known = self.reached.get(self._space(key), _UNREAD), self._versions.get(key)
        if known is not None and listed is not None and version < known[1] <= listed:
            # From a backup with raised revisions: else no list shows an earlier version.
            self.doubt(*key)
        if listed is None or listed >= reached or known is not None:
            self._take(key, uid, version, document)
        return key

    def _space(self, key: Key) -> str:
        """Return the namespace that is followed in which that is."""
        return "" if "" in self.reached else key[0]

    def _take(self, key: Key, uid: str, version: int, document: Json) -> None:
        known, gone = self._versions.get(key), self._gone.get(key)
        if known is not None and known[1] >= version:
            return
        if gone is not None:
            # Of that one, or of one that had the name before it.
            if gone[0] == uid or gone[1] >= version:
                return
            del self._gone[key]
        if known is not None and known[0] != uid:
            self.unreadable.pop(key, None)
        before, after = self.objects.get(key), self._read(key, document)
        self._versions[key] = (uid, version)
        if after is None:
            self.objects.pop(key, None)
        else:
            if before is not None and known is not None and known[0] == uid:
                after = self._carry(before, after)
            self.objects[key] = after
        if before is not None or after is not None:
            self._changed(before, after)

    def _read(self, key: Key, document: Json) -> T | None:
        try:
            value = self._parse(document)
            unread = self._unread(value)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is this object's alone
            foreseen = isinstance(error, ValueError)
            said = str(error) if foreseen else f"{type(error).__name__}: {error}"
            why = self._report(key, document, said, None if foreseen else error)
            return None if self._cautious is None else self._cautious(document, why)
        if unread:
            self._report(key, document, unread, None)
        elif self.unreadable:
            self.unreadable.pop(key, None)
        return value

    def _report(self, key: Key, document: Json, said: str, trace: Exception | None) -> Unreadable:
        """Record and return why an object cannot be read; report it if that is new."""
        why = Unreadable("".join(c if c.isprintable() else "?" for c in said[:LONGEST_REASON]))
        if self.unreadable.get(key) != why:
            self.unreadable[key] = why
            about = {part: document.get(part, "") for part in ("apiVersion", "kind", "metadata")}
            kind, name = about["kind"], "/".join(filter(None, key))
            log.warning("%s %s cannot be read: %s", kind, name, why.reason, exc_info=trace)
            self._told(about, why)
        return why

    def remove(self, document: Json) -> None:
        """Forget an object that a watch shows the end of, unless its name has a new one by now."""
        key, uid, version = _identity(document)
        # The answer to a write that was made before is from before that, however late it comes.
        space = self._space(key)
        if self.reached.get(space, _UNREAD) != _UNREAD:
            self.reach(space, version)
        if self._gone.get(key, ("", 0))[0] == uid:
            del self._gone[key]
        known = self._versions.get(key)
        if known is None or (known[0] != uid and known[1] > version):
            return
        self._drop(key)

    def discard(self, namespace: str, name: str, uid: str) -> None:
        """Forget the object with that uid, of which a write has shown that it is gone.

        What a watch shows of it after that was before.
        """
        known = self._versions.get((namespace, name))
        if known is not None and known[0] == uid:
            self._gone[namespace, name] = known
            self._drop((namespace, name))

    def doubt(self, namespace: str, name: str) -> None:
        """Let the next version that is observed count, even if it is the one that is known."""
        key = namespace, name
        if key in self._versions:
            self._versions[key] = self._versions[key][0], _UNREAD

    def set_back(self, namespace: str, version: int) -> None:
        """Take in that the server has been set back to that earlier state, of which a list comes.

        What the list holds counts whatever its version, and all else is gone.
        """
        for key, (uid, _) in self._versions.items():
            if namespace in ("", key[0]):
                self._versions[key] = (uid, _UNREAD)
        # What had gone since may be there again.
        self._gone.clear()
        self.reached[namespace] = version

    def listed(self, namespace: str, seen: Container[Key], version: int) -> None:
        """Take in that a list of that version, which is complete, held no other keys."""
        # What was written here while the list was under way is newer than the list.
        gone = [
            key
            for key, (_, known) in self._versions.items()
            if namespace in ("", key[0]) and key not in seen and known <= version
        ]
        for key in gone:
            self._drop(key)
        # The list has shown their end: a watch that goes on from it does not show them again. Of
        # what was made after it, it has shown nothing.
        for key, (_, known) in list(self._gone.items()):
            if namespace in ("", key[0]) and key not in seen and known <= version:
                del self._gone[key]
        self.reach(namespace, version)

    def reach(self, namespace: str, version: int) -> None:
        """Take in that all changes up to that version have been shown."""
        # A list that was read beside the watch may have been overtaken by it.
        self.reached[namespace] = max(version, self.reached.get(namespace, _UNREAD))

    def _drop(self, key: Key) -> None:
        del self._versions[key]
        self.unreadable.pop(key, None)
        self._changed(self.objects.pop(key, None), None)


def _identity(document: Json) -> tuple[Key, str, int]:
    metadata = document["metadata"]
    key = (metadata.get("namespace", ""), metadata["name"])
    # Comparable within a resource: etcd's revisions, which only a restore sets back.
    return key, metadata.get("uid", ""), int(metadata.get("resourceVersion") or 0)
