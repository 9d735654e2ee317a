# SPDX-License-Identifier: Apache-2.0
"""Owners of objects, by the whole controller reference.

Users may write any uid into the ownerReferences of their objects. So nothing is looked up by a uid
alone, and an index by owner has owners for keys.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from muster.api import edge


class Owner(NamedTuple):
    """An object, as the controller reference of what belongs to it names it."""

    namespace: str
    """That of the object that has the reference: nobody owns anything in another."""
    group: str
    """Of its apiVersion; which version is no matter."""
    kind: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """`<kind>/<namespace>/<name>`: how the work queue and the caches know a job."""
        return f"{self.kind}/{self.namespace}/{self.name}"


def controller(metadata: dict[str, Any]) -> Owner | None:
    """Return the controller of the object with that metadata, None if it has none."""
    namespace = edge.text(metadata.get("namespace"))
    for each in map(edge.mapping, edge.sequence(metadata.get("ownerReferences"))):
        if each.get("controller"):
            version, kind, name, uid = (
                edge.text(each.get(key)) for key in ("apiVersion", "kind", "name", "uid")
            )
            return as_owner(version, kind, namespace, name, uid)
    return None


def as_owner(api_version: str, kind: str, namespace: str, name: str, uid: str) -> Owner:
    """Return whom the references to an object name."""
    return Owner(namespace, api_version.rpartition("/")[0], kind, name, uid)
