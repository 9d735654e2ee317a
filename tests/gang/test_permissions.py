# SPDX-License-Identifier: Apache-2.0
"""What a backend says it must be allowed to do, against the roles that are shipped for it."""

from pathlib import Path

import pytest
import yaml

from muster import gang

MANIFESTS = Path(__file__).parents[2] / "manifests"


def granted(*paths):
    """Return the (group, resource, verb) of every cluster role in these files."""
    documents = (doc for path in paths for doc in yaml.safe_load_all(path.read_text()) if doc)
    return {
        (group, resource, verb)
        for document in documents
        if document["kind"] == "ClusterRole"
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(name):
    """Return the (group, resource, verb) that a backend asks for, or can do without."""
    backend = gang.BACKENDS[name]
    every = (*backend.permissions, *backend.optional.values())
    return {(p.group, p.resource, verb) for p in every for verb in p.verbs}


@pytest.mark.parametrize("name", [name for name in gang.BACKENDS if name != "none"])
def test_shipped_roles_grant_what_the_backend_needs(name):
    """Nothing that a backend asks for is missing from its component and the base."""
    roles = granted(
        MANIFESTS / "base" / "roles.yaml", MANIFESTS / "components" / name / "roles.yaml"
    )
    assert asked(name) <= roles


@pytest.mark.parametrize("name", [name for name in gang.BACKENDS if name != "none"])
def test_components_grant_no_more(name):
    """A component of roles holds only what the backend asks for."""
    roles = granted(MANIFESTS / "components" / name / "roles.yaml")
    assert roles - asked(name) == set()
