# SPDX-License-Identifier: Apache-2.0
"""Pods are deleted, evicted or suspended only by code that asks `api.deletion.is_permitted`.

The test reads the source of the package. `muster local`, which plays the kubelets of its own
cluster, is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import muster

PACKAGE = Path(muster.__file__).parent
SITES = {
    # Values that stand for a deletion. What they carry was permitted in the same function, or is
    # the reason DEPENDENT, for objects without pods.
    ("Doomed()", "controller/pods.py", "doomed"),
    ("Delete()", "controller/pods.py", "pod_deletions"),
    ("Delete()", "controller/pods.py", "delete_job"),
    ("Delete()", "controller/dependents.py", "removals"),
    ("Evict()", "allocator/tracker.py", "_evict"),
    # Requests. They carry out what these values ask for.
    (".delete()", "runtime/reconciler.py", "_delete"),
    (".delete()", "runtime/reconciler.py", "_own"),
    (".delete()", "allocator/binder.py", "_delete"),
    ("'DELETE'", "kube/client.py", "delete"),
    ("'eviction'", "allocator/binder.py", "_refuses"),
    # A suspended batch Job has no pods: suspended after `doomed`, or created suspended. A user who
    # calls `muster restart` suspends the job.
    ("suspend: True", "controller/batches.py", "suspensions"),
    ("suspend: True", "controller/templates.py", "batch_job"),
    ("suspend: suspend", "commands/control.py", "_write"),
}
ADVICE = (
    "This code can delete pods that run. Return `controller.pods.pod_deletions` of what "
    "`controller.pods.doomed` permits, or a `Leaving` of the allocator's tracker, with a "
    "DeletionReason of api/reasons.py whose rule is in api/deletion.py. If it deletes no pods, "
    "add it to SITES in tests/test_deletion_sites.py."
)


def found_in(source: str) -> Iterator[tuple[str, str]]:
    """Yield what may delete pods in a module, and the function that has it."""
    yield from _found(ast.parse(source), "")


def _found(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
    yield from ((what, function) for what in _what(node))
    # Docstrings and comments tell of evictions as well; a match pattern builds nothing.
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.match_case):
            yield from _found(child, function)
            continue
        for inner in child.body:
            yield from _found(inner, function)


def _what(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in ("Doomed", "Delete", "Evict"):
            yield f"{name}()"
        module = getattr(getattr(called, "value", None), "id", "")
        if isinstance(called, ast.Attribute) and name == "delete" and module != "np":
            yield ".delete()"
    if isinstance(node, ast.Constant) and node.value in ("eviction", "DELETE", "deletecollection"):
        yield repr(node.value)
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            named = isinstance(key, ast.Constant) and key.value == "suspend"
            if named and ast.unparse(value) in ("True", "suspend"):
                yield f"suspend: {ast.unparse(value)}"


def sites() -> set[tuple[str, str, str]]:
    """Return every place of the package that may delete pods."""
    return {
        (what, path.relative_to(PACKAGE).as_posix(), function)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "local"
        for what, function in found_in(path.read_text(encoding="utf-8"))
    }


def test_pods_are_deleted_only_where_a_reason_was_permitted() -> None:
    """Every call site that can delete pods is known, and each known one exists."""
    there = sites()
    assert not there - SITES, ADVICE
    assert not SITES - there, "SITES names code that does not exist"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("def f(): return model.Delete('v1', 'Pod', 'a', 'b', 'u', why)", "Delete()"),
        ("def f(): effects.append(Evict(pod, cause))", "Evict()"),
        ("def f(): return [Doomed(pod, reason)]", "Doomed()"),
        ("async def f(): await self._kube.delete(path, uid, level)", ".delete()"),
        ("def f(): return PODS.path(namespace, name, 'eviction')", "'eviction'"),
        ("async def f(): await session.request('DELETE', url)", "'DELETE'"),
        ("def f(): return {'spec': {'suspend': True}}", "suspend: True"),
    ],
)
def test_code_that_deletes_pods_is_found(source: str, what: str) -> None:
    """A new call site does not escape the scan."""
    assert list(found_in(source)) == [(what, "f")]
