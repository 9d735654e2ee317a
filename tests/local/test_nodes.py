# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes carry what real ones do, and kwok's stages are filled in."""

from __future__ import annotations

import re

import yaml

from muster.local import nodes, options

NOW = "2026-01-02T03:04:05Z"
SMALL = {"cpu": "4", "memory": "8Gi", "pods": "10"}
LARGE = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}


def document(index: int, **asked: object) -> dict:
    """Node `index` of a cluster with these options."""
    return nodes.document(index, options.Options(**asked), "v1.37.1", NOW)


def test_shapes_take_turns() -> None:
    """All of the capacity and some storage can be allocated; shapes give a mixed cluster."""
    for index, shape in enumerate((SMALL, LARGE, SMALL, LARGE)):
        status = document(index, shapes=(SMALL, LARGE))["status"]
        assert status["capacity"] == {"ephemeral-storage": "100Gi", **shape}
        assert status["allocatable"] == status["capacity"]


def test_well_known_labels_are_there() -> None:
    """Hostname, system, architecture and zone, of which several take turns."""
    for index, zone in enumerate("abca"):
        labels = document(index)["metadata"]["labels"]
        assert labels["kubernetes.io/hostname"] == f"node-{index + 1}"
        assert labels["kubernetes.io/os"] == "linux"
        assert labels["kubernetes.io/arch"] == nodes.architecture()
        assert labels["topology.kubernetes.io/zone"] == f"local-{zone}"


def test_no_two_nodes_share_an_address() -> None:
    """Up to as many nodes as are allowed."""
    made = [document(i) for i in (0, 1, 255, 256, 65535 // 3, options.MOST_NODES - 1)]
    assert len({node["status"]["addresses"][0]["address"] for node in made}) == len(made)


def test_labels_and_taints_asked_for_are_on_every_node() -> None:
    """Beside the well-known ones."""
    node = document(
        3,
        labels={"rack": "7"},
        taints=({"key": "dedicated", "value": "ml", "effect": "NoSchedule"},),
    )
    assert node["metadata"]["labels"]["rack"] == "7"
    assert node["spec"]["taints"] == [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]


def test_kwok_makes_its_nodes_ready_itself() -> None:
    """Without kwok a node is born ready, unless a taint says that it is not."""
    node = document(0)
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    assert not nodes.ready(node)
    node = document(0, kwok=False)
    assert node["metadata"]["annotations"] == {}
    assert nodes.ready(node)
    node["spec"]["taints"] = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert not nodes.ready(node)


def test_among_real_nodes_a_simulated_one_keeps_off_all_who_do_not_ask_for_it() -> None:
    """By a taint, and by names and addresses that are nobody's; no load balancer."""
    taint = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
    node = document(1, mark="x-123abc", taints=(taint,), labels={nodes.MARK: "other"})
    meta = node["metadata"]
    assert meta["name"] == meta["labels"]["kubernetes.io/hostname"] == "simulated-x-123abc-2"
    assert meta["labels"][nodes.MARK] == "x-123abc"
    assert "node.kubernetes.io/exclude-from-external-load-balancers" in meta["labels"]
    assert meta["annotations"] == {nodes.MARK: "x-123abc"}
    assert node["spec"] == {
        "taints": [nodes.KEEP_OFF, {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]
    }
    assert node["status"]["addresses"][0]["address"] == "198.18.0.2"


def test_the_longest_name_of_a_simulated_node_is_a_label_still() -> None:
    """Its hostname label has at most 63 characters."""
    mark = f"{'a' * 40}-123abc"
    assert len(nodes.name(options.MOST_NODES - 1, mark)) <= 63
    assert len(nodes.namespace(mark)) <= 63


def rendered(run_seconds: str) -> list[dict]:
    """Documents as kwok reads them."""
    return list(yaml.safe_load_all(nodes.render_stages(run_seconds)))


def test_stages_follow_the_configuration_of_kwok() -> None:
    """No word is left to be filled in, and both ends of pods wait for the same time."""
    assert not re.findall(r"@[A-Z_]+@", nodes.render_stages("5"))
    first, *stages = rendered("7.25")
    assert (first["kind"], {one["kind"] for one in stages}) == ("KwokConfiguration", {"Stage"})
    having = {one["metadata"]["name"] for one in stages if "7.25" in str(one)}
    assert having == {"pod-end", "pod-end-counted"}
    assert "7.25" not in str(first)


def test_a_pod_that_is_being_deleted_only_goes() -> None:
    """Each other stage of pods leaves it alone, so that kwok never has to choose."""
    for one in rendered("5")[1:]:
        name, spec = one["metadata"]["name"], one["spec"]
        if spec["resourceRef"]["kind"] != "Pod":
            continue
        deletion = [
            rule["operator"]
            for rule in spec["selector"]["matchExpressions"]
            if rule["key"] == ".metadata.deletionTimestamp"
        ]
        goes = name in {"pod-delete", "pod-deleted"}
        assert deletion == ["Exists" if goes else "DoesNotExist"], name


def test_no_pod_is_deleted_that_the_server_deletes_itself() -> None:
    """It would be another one of that name: of the two stages, that with no grace left writes."""
    by_name = {one["metadata"]["name"]: one["spec"] for one in rendered("5")[1:]}
    deleting = [name for name, spec in by_name.items() if (spec.get("next") or {}).get("delete")]
    assert deleting == ["pod-delete"]
    for name, operator in (("pod-delete", "In"), ("pod-deleted", "NotIn")):
        grace = {
            "key": ".metadata.deletionGracePeriodSeconds > 0",
            "operator": operator,
            "values": ["true"],
        }
        assert grace in by_name[name]["selector"]["matchExpressions"]


def test_what_is_written_into_a_pod_is_refused_by_any_other_of_its_name() -> None:
    """It carries the uid of the pod that it is meant for, which no `statusTemplate` can."""
    carrying = {}
    for one in rendered("5")[1:]:
        name, spec = one["metadata"]["name"], one["spec"]
        of_pods = spec["resourceRef"]["kind"] == "Pod"
        assert not of_pods or spec.get("next", {}).keys() <= {"delete"}, name
        for step in spec.get("steps", ()):
            template = step.get("patch", step.get("apply"))["template"]
            if of_pods and "patch" in step:
                carrying[name] = "uid: {{ .metadata.uid | Quote }}" in template
                assert "root" not in step["patch"], name
            elif "kind: Pod\n" in template:
                carrying[name] = "uid: {{ .data.asked | Quote }}" in template
    ends = {"pod-end", "pod-end-counted", "pod-deleted", "pod-refuse"}
    assert carrying == dict.fromkeys(ends | {"attempt-answer", "pod-run", "pod-restart"}, True)


def test_attempts_of_a_cluster_that_was_there_are_counted_apart() -> None:
    """Somebody else's simulated pods in it may be counted as well."""
    text = nodes.render_stages("5", "guest-1a2b3c")
    assert text.count("muster-local-guest-1a2b3c") == nodes.render_stages("5").count(
        "muster-local"
    )
    assert text.count("muster-local") == text.count("muster-local-guest-1a2b3c")
