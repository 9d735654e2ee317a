# SPDX-License-Identifier: Apache-2.0
"""Parts of manifests that name every job kind are written from the table of frameworks."""

from __future__ import annotations

from pathlib import Path

import kinds
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", kinds.FILES)
def test_manifest_without_last_kind_is_completed(name: str) -> None:
    """A file that lacks the last kind of the table is written with all kinds."""
    text = (ROOT / name).read_text()
    plural, kind = kinds.PLURALS[-1], kinds.KINDS[-1]
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
    assert kinds.FILES[name](lacking) == text
