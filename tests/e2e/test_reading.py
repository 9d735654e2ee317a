# SPDX-License-Identifier: Apache-2.0
"""The loader of manifests is compared with kubectl itself."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from muster.api import manifest
from muster.api.manifest import ManifestError
from support.builders.readings import KEYS, REFUSED, REFUSED_KEYS, VALUES
from support.e2e.harness import Api

pytestmark = pytest.mark.e2e

OBJECT = "apiVersion: a.b/v1\nkind: X\nmetadata: {{name: x}}\nspec:\n  {}\n"


def by_kubectl(api: Api, text: str) -> list[Any]:
    """Return the specs that kubectl reads; none if it reports an error."""
    words = ("kubectl", "label", "--local", "-f", "-", "read=true", "-o", "json")
    environment = {**os.environ, **api.cluster.env()}
    done = subprocess.run(
        words, input=text.encode(), env=environment, capture_output=True, check=False
    )
    if done.returncode:
        return []
    # kubectl prints a float beyond 64 bits without an exponent.
    decoder = json.JSONDecoder(parse_int=manifest.document)
    left, found = done.stdout.decode().strip(), list[Any]()
    while left:
        value, end = decoder.raw_decode(left)
        found.append(value["spec"])
        left = left[end:].strip()
    return found


def by_muster(text: str) -> list[Any]:
    """Return the specs that Muster reads; none if it reports an error."""
    try:
        return [each["spec"] for each in manifest.documents(text)]
    except ManifestError:
        return []


def test_loader_reads_what_kubectl_reads(shared_api: Api) -> None:
    """Every value and key of the table."""
    lines = (*(f"v: {value}" for value in VALUES), *(f"{key}: v" for key in KEYS))
    text = "---\n".join(map(OBJECT.format, lines))
    assert by_muster(text) == by_kubectl(shared_api, text)


def test_loader_refuses_what_kubectl_refuses(shared_api: Api) -> None:
    """Neither reads a part of the document."""
    lines = (*(f"v: {value}" for value in REFUSED), *(f"{{{key}: v}}" for key in REFUSED_KEYS))
    for text in map(OBJECT.format, lines):
        assert by_muster(text) == by_kubectl(shared_api, text) == [], text
