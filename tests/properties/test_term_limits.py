# SPDX-License-Identifier: Apache-2.0
"""Terms beyond the limits: the cautious reading never allows more than the terms themselves."""

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from muster.api import podtemplate
from support.builders.scheduler import admits, make_columns, make_node, make_pod, make_role

HOSTNAME, REQUIRED = "kubernetes.io/hostname", "requiredDuringSchedulingIgnoredDuringExecution"
NODES = [
    make_node(name=f"n{i}", labels={HOSTNAME: f"n{i}", "zone": "ab"[i // 2]}) for i in range(4)
]
SPACES = {"team": {"kind": "prod"}, "other": {"kind": "test"}, "third": {}}
LABELS = st.fixed_dictionaries({}, optional={"app": st.sampled_from("ab"), "tier": st.just("x")})
SELECTORS = st.one_of(
    st.none(),
    st.builds(lambda labels: {"matchLabels": labels}, LABELS),
    st.builds(
        lambda key, operator: {
            "matchExpressions": [{"key": key, "operator": operator, "values": ["a"]}]
        },
        st.sampled_from(["app", "tier"]),
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Nonsense"]),
    ),
)
KIND = st.sampled_from([{}, {"matchLabels": {"kind": "prod"}}])
TERMS = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from([HOSTNAME, "zone", "none"])},
    optional={
        "labelSelector": SELECTORS,
        "namespaces": st.lists(st.sampled_from([*SPACES, "unknown"])),
        "namespaceSelector": KIND,
    },
)


def columns_with(pod, limits):
    """Return the columns with a pod that was read under these limits."""
    with mock.patch.multiple(podtemplate, MAX_TERMS=limits[0], MAX_REQUIREMENTS=limits[1]):
        columns = make_columns(nodes=NODES, pods=[pod])
    for name, labels in SPACES.items():
        columns.space_changed(name, labels)
    return columns


@given(
    terms=st.lists(TERMS, max_size=8),
    limits=st.tuples(st.integers(3, 6), st.integers(1, 6)),
    namespace=st.sampled_from([*SPACES, "unknown"]),
    labels=LABELS,
)
def test_cautious_reading_of_anti_affinity_excludes_all_that_the_terms_exclude(
    terms, limits, namespace, labels
):
    """A node that the pod's own terms forbid stays forbidden, and cost is limited."""
    pod = make_pod(namespace="other", labels={"app": "a"}, node="n1")
    pod["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: terms}}
    full, cautious = columns_with(pod, (100, 100)), columns_with(pod, limits)
    shape = make_role(labels=labels, namespace=namespace).shape
    for node in NODES:
        name = node["metadata"]["name"]
        assert admits(full, name, shape) or not admits(cautious, name, shape)
    with mock.patch.multiple(podtemplate, MAX_TERMS=limits[0], MAX_REQUIREMENTS=limits[1]):
        within = len(podtemplate.readable_terms(pod["spec"], podtemplate.ANTI_AFFINITY))
    if within == len(terms):
        assert [admits(full, n["metadata"]["name"], shape) for n in NODES] == [
            admits(cautious, n["metadata"]["name"], shape) for n in NODES
        ]
