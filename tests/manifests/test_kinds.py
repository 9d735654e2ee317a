# SPDX-License-Identifier: Apache-2.0
"""Parts of manifests that name every job kind are written from the table of frameworks."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def _loaded() -> ModuleType:
    path = ROOT / "tools" / "site" / "kinds.py"
    spec = importlib.util.spec_from_file_location("kinds", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KINDS = _loaded()


@pytest.mark.parametrize("name", KINDS.FILES)
def test_manifest_without_last_kind_is_completed(name: str) -> None:
    """A file that lacks the last kind of the table is written with all kinds."""
    text = (ROOT / name).read_text()
    plural, kind = KINDS.PLURALS[-1], KINDS.KINDS[-1]
    kept = [
        line.replace(f", {plural}", "")
        for line in text.splitlines(keepends=True)
        if not line.strip().startswith((f"- {plural}", f"- kubeflow.org_{plural}"))
    ]
    lacking = "".join(kept)
    if (
        at := lacking.find(
            f"    - groupVersionKind: {{group: kubeflow.org, version: v1, kind: {kind}"
        )
    ) >= 0:
        lacking = lacking[:at]
    assert lacking != text
    assert KINDS.FILES[name](lacking) == text
