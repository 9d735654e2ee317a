# SPDX-License-Identifier: Apache-2.0
"""Whether a node suits a pod's constraints, by the rules of the Kubernetes scheduler."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from muster.runtime.shapes import NodeView, PodShape, Taint, Term, Toleration
from muster.runtime.ties import Expression, Labels, Tie
from muster.scheduler.model import Link

NOT_READY: Final = "node(s) were not ready"
UNSCHEDULABLE: Final = "node(s) were unschedulable"
OTHER_NAME: Final = "node(s) didn't match the requested node name"
NO_MATCH: Final = "node(s) didn't match Pod's node affinity/selector"
NOT_NEAR: Final = "node(s) didn't match pod affinity rules"
NO_DOMAIN: Final = "node(s) didn't match pod topology spread constraints (missing required label)"

_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_INTEGER: Final = re.compile(r"[0-9]+")
"""A sign makes a number no label value, and a term with such a value holds nowhere."""


def barrier(shape: PodShape, node: NodeView) -> str:
    """Return why the node does not suit the shape, in kube-scheduler's words; empty if it does.

    Resources and ports in use are not looked at.
    """
    if not node.ready:
        return NOT_READY
    if node.unschedulable and not _tolerated(_CORDON, shape.tolerations):
        return UNSCHEDULABLE
    if shape.node_name and shape.node_name != node.name:
        return OTHER_NAME
    for taint in node.taints:
        if not _tolerated(taint, shape.tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if not _selected(shape, node):
        return NO_MATCH
    return next((_MISSING[t.link] for t in shape.ties if _lacks(t, node)), "")


def counts(shape: PodShape, tie: Tie, node: NodeView) -> bool:
    """Say whether the policies of a spread constraint let pods on the node count."""
    if tie.honours_affinity and not _selected(shape, node):
        return False
    return not tie.honours_taints or all(_tolerated(t, shape.tolerations) for t in node.taints)


def chosen(selector: Iterable[Expression], labels: Labels) -> bool:
    """Say whether all requirements hold for these labels."""
    return all(_meets(expression, labels) for expression in selector)


def _lacks(tie: Tie, node: NodeView) -> bool:
    return tie.link in _MISSING and tie.key not in node.labels


def preference(shape: PodShape, node: NodeView) -> float:
    """Return the share of the shape's preferred terms that the node matches, 0 - 100."""
    weights = sum(weight for weight, _ in shape.preferred)
    matched = sum(weight for weight, term in shape.preferred if holds(term, node))
    return 100 * matched / weights if weights else 0.0


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(toleration.covers(taint) for toleration in tolerations)


def _selected(shape: PodShape, node: NodeView) -> bool:
    if any(node.labels.get(key) != value for key, value in shape.selector):
        return False
    return shape.affinity is None or any(holds(term, node) for term in shape.affinity)


def holds(term: Term, node: NodeView) -> bool:
    """Say whether all requirements of a term hold for a node; false for a term without any."""
    if not term.labels and not term.fields:
        return False
    names = {"metadata.name": node.name}
    return all(_meets(e, node.labels) for e in term.labels) and all(
        _meets(e, names) for e in term.fields
    )


def _meets(expression: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    return _OPERATORS.get(expression.operator, _never)(value, expression.values)


def _never(_value: str | None, _values: tuple[str, ...]) -> bool:
    return False


def _greater(value: str | None, values: tuple[str, ...], sign: int) -> bool:
    if value is None or len(values) != 1:
        return False
    if not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(values[0]):
        return False
    return (int(value) - int(values[0])) * sign > 0


_MISSING: Final = {Link.NEAR: NOT_NEAR, Link.EVEN: NO_DOMAIN}
"""Why a node without the label of such a term is out."""

_OPERATORS: Final[Mapping[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _greater(value, values, 1),
    "Lt": lambda value, values: _greater(value, values, -1),
}
