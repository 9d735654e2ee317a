# SPDX-License-Identifier: Apache-2.0
"""The plugin as krew installs it: a manifest to fill in, and a file that finds the program."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "manifests" / "krew"
SCRIPT = FOLDER / "kubectl-muster"


def test_the_manifest_names_what_there_is() -> None:
    """And nobody's address."""
    document = yaml.safe_load((FOLDER / "muster.yaml").read_text())
    assert document["metadata"]["name"] == "muster"
    assert (FOLDER / document["spec"]["platforms"][0]["bin"]).stat().st_mode & 0o111
    for platform in document["spec"]["platforms"]:
        assert (platform["uri"], platform["sha256"]) == ("URI", "SHA256")
        roots = (FOLDER, FOLDER.parents[1])
        assert all(any((r / f["from"]).exists() for r in roots) for f in platform["files"])


@pytest.mark.parametrize(
    ("name", "words"),
    [("kubectl-muster", "queue stop"), ("kubectl_complete-muster", "__complete queue stop")],
)
def test_the_program_is_found(tmp_path: Path, name: str, words: str) -> None:
    """With the words as they came; without it, what to do is said."""
    link, program = tmp_path / name, tmp_path / "muster"
    link.symlink_to(SCRIPT)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    told = subprocess.run(
        [link, "queue", "stop"], env=env, capture_output=True, text=True, check=False
    )
    assert told.returncode == 127
    assert "pipx install" in told.stderr
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    told = subprocess.run(
        [link, "queue", "stop"], env=env, capture_output=True, text=True, check=True
    )
    assert told.stdout == f"{words}\n"
