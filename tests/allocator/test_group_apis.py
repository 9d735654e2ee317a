# SPDX-License-Identifier: Apache-2.0
"""Pods of other controllers whose groups are objects of Volcano or of Kubernetes itself."""

import asyncio
from dataclasses import replace

import pytest

from muster import gang
from muster.allocator.members import PodGroupMembers
from muster.allocator.status import GroupStatus
from muster.cluster.podgroups import PLUGINS
from muster.kube.client import Exactly
from muster.kube.resources import QUEUES
from muster.store.podgroups import SOURCES
from muster.store.store import Store
from support.builders.scheduler import make_node, make_pod
from support.rehearsal.gang_tracking import Following, Shown

VOLCANO, NATIVE = "PodGroup/team/g", "PodGroup.scheduling.k8s.io/team/g"
BY_LABEL = "scheduling.x-k8s.io/pod-group"
BY_ANNOTATION = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


class Story(Shown):
    """A store whose scheduler has that name, with a group of three pods and one node."""

    def __init__(self, backend=gang.VOLCANO, *, source="volcano", scheduler="volcano", **spec):
        """Begin with the group, and without pods."""
        ours = replace(gang.EMBEDDED, scheduler_name=scheduler, scheduler_names=(scheduler,))
        self.store, self.scheduler, self.patches = Store(ours, []), scheduler, []
        api = backend.apis[0]
        self.groups = self.store.podgroups.others[source].use(api)
        self.put({"kind": "Node", **make_node(name="n1", cpu=8)})
        metadata = {"name": "g", "namespace": "team", "uid": "uid-g", "resourceVersion": "1"}
        self.group = {"kind": "PodGroup", "apiVersion": api.api_version, "metadata": metadata}
        self.group["spec"] = spec or {"minMember": 3}
        self.groups.take(self.group)

    def pod(self, name, node="", mark=BY_ANNOTATION[0], **more):
        """Show a member, on a node or pending."""
        phase = "Running" if node else "Pending"
        document = make_pod(name=name, node=node, namespace="team", cpu=1, phase=phase)
        document["spec"] |= {"schedulerName": self.scheduler, **more}
        where = "labels" if mark == BY_LABEL else "annotations"
        document["metadata"][where] = {mark: "g"} if mark else {}
        self.put({"kind": "Pod", **document})

    def follow(self, key):
        """Return the gang as it is followed."""
        following = Following(
            self.store, PodGroupMembers, key, self.scheduler, 0.0, 120.0, expired=""
        )
        following.look()
        return following

    async def patch(self, path, exactly, patch, _urgency):
        """Record what is written. The API server ignores the uid in a patch of a status."""
        assert exactly == Exactly("uid-g", self.groups.version("team", "g", "uid-g"))
        self.patches.append((path, patch["status"]))

    def written(self, memory=None, key=VOLCANO):
        """Return the phases that are written, and where."""
        self.patches.clear()
        asyncio.run(GroupStatus(self, self.store, None)._write(key, memory))
        return [(path, status.get("phase")) for path, status in self.patches]


@pytest.mark.parametrize("mark", BY_ANNOTATION)
def test_group_of_volcano_is_read_for_its_pods(mark):
    """The minimum is the group's."""
    story = Story()
    for name in "abc":
        story.pod(name, mark=mark)
    found = story.follow(VOLCANO).look()
    assert (found.min_member, found.refusal) == (3, None)


@pytest.mark.parametrize(
    ("source", "key", "mark"),
    [("legacy", VOLCANO, BY_ANNOTATION[0]), (PLUGINS, f"{PLUGINS}/team/g", BY_LABEL)],
)
def test_groups_of_other_schedulers_are_read_for_their_pods(source, key, mark):
    """Those of kube-batch and of scheduler-plugins."""
    story = Story(SOURCES[source], source=source)
    for name in "abc":
        story.pod(name, mark=mark)
    found = story.follow(key).look()
    assert (found.min_member, found.refusal) == (3, None)


def test_queue_of_a_volcano_group_is_musters_of_that_name_or_the_default():
    """Volcano's own queues are not read."""
    story = Story(minMember=1, queue="research")
    story.pod("a")
    following = story.follow(VOLCANO)
    assert following.look().queue == "default"
    story.put(
        {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "research"}}
    )
    assert following.look().queue == "research"


PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/g"


def test_status_of_a_volcano_group_is_inqueue_and_then_running():
    """Controllers wait for Inqueue before they create the pods, so the group has none yet."""
    story = Story()
    assert story.written() == [(PATH, "Inqueue")]
    for name in "abc":
        story.pod(name)
    following = story.follow(VOLCANO)
    assert story.written(following.memory) == [(PATH, "Inqueue")]
    for name in "abc":
        story.pod(name, node="n1")
    following.look()
    assert story.written(following.memory) == [(PATH, "Running")]


def test_group_of_volcano_without_pods_is_left_to_volcano():
    """Pods of another scheduler may follow where no scheduler name of Muster is Volcano's."""
    assert Story(scheduler="muster").written() == []


@pytest.mark.parametrize("phase", ["Inqueue", "Running", "Completed"])
def test_status_of_an_admitted_volcano_group_without_pods_stays(phase):
    """Its pods may have finished."""
    story = Story()
    metadata = {**story.group["metadata"], "resourceVersion": "2"}
    story.groups.take({**story.group, "metadata": metadata, "status": {"phase": phase}})
    assert story.written() == []


def test_group_of_volcano_without_pods_is_announced():
    """When it is observed, and when a process begins to write."""
    story = Story()
    announced = []
    story.store.foreign.enqueue = announced.append
    metadata = {**story.group["metadata"], "resourceVersion": "2"}
    story.groups.take({**story.group, "metadata": metadata, "spec": {"minMember": 2}})
    assert announced == [VOLCANO]
    assert list(story.store.podgroups.of_volcano()) == [VOLCANO]


def test_group_of_kubernetes_is_read_for_its_pods():
    """A field of the pods names the group, whose policy has the minimum."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    story = Story(gang.KUBERNETES, source="PodGroup.scheduling.k8s.io", **spec)
    for name in "abc":
        story.pod(name, mark="", schedulingGroup={"podGroupName": "g"})
    following = story.follow(NATIVE)
    found = following.look()
    assert (found.min_member, found.refusal) == (2, None)
    assert story.written(following.memory, NATIVE) == []
