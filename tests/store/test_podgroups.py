# SPDX-License-Identifier: Apache-2.0
"""Other people's pods, by gang."""

from muster.cluster.podgroups import Ask
from muster.cluster.pods import PodShape
from muster.store.podgroups import ForeignPods
from support.builders.objects import make_pod

KEY = "PodGroup/team/g"


def member(name="a", *, group=KEY, **pod):
    """Return a pod of the gang."""
    return make_pod(name=name, **pod), Ask(group, 0, 0, PodShape((("cpu", 1000),)))


def test_members_come_and_go():
    """Oldest first; a gang ends with its last pod; each change is reported."""
    reported = []
    pods = ForeignPods(reported.append)
    young, old = member("a", created=2.0), member("b", created=1.0)
    pods.changed(None, young)
    pods.changed(None, old)
    assert [pod.name for pod, _ in pods.members(KEY)] == ["b", "a"]
    assert (pods.key_of(young[0]), pods.revision(KEY), reported) == (KEY, 2, [KEY, KEY])
    pods.changed(old, old)
    assert pods.revision(KEY) == 2
    pods.changed(young, None)
    pods.changed(old, None)
    assert (list(pods), pods.key_of(young[0]), pods.revision(KEY)) == ([], "", 0)


def test_a_new_pod_of_an_old_name():
    """The end of the one before it, shown late, takes nothing away."""
    pods = ForeignPods(lambda _key: None)
    before, after = member(uid="one"), member(uid="two")
    pods.changed(None, after)
    pods.changed(before, None)
    assert [pod for pod, _ in pods.members(KEY) if pod.name == "a"] == [after[0]]
    moved = member(uid="two", group="PodGroup/team/other")
    pods.changed(after, moved)
    assert list(pods) == ["PodGroup/team/other"]
