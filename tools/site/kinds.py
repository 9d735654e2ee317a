# SPDX-License-Identifier: Apache-2.0
"""Writes the parts of manifests that name every job kind, from the table of frameworks.

In each file, what stands there for the first kind is the template for all the others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import crdgen
from muster.frameworks import FRAMEWORKS

ROOT: Final = Path(__file__).parents[2]
KINDS: Final = tuple(FRAMEWORKS)
PLURALS: Final = tuple(row.plural for row in FRAMEWORKS.values())
_RESOURCE: Final = rf"(?:{'|'.join(PLURALS)})(?:/\w+)?"
_FLOW_LIST: Final = re.compile(rf"\[({_RESOURCE}(?:, {_RESOURCE})*)\]")
_BLOCK_LIST: Final = re.compile(rf"(?:^ *- {_RESOURCE}\n)+", re.MULTILINE)
_METRICS: Final = re.compile(r"(?:^    - groupVersionKind: .*\n(?:^      .*\n)+)+", re.MULTILINE)


def resources(text: str) -> str:
    """Return the manifest with all plurals in each list of resources that names jobs."""

    def flow(found: re.Match[str]) -> str:
        return f"[{', '.join(_all_of(found[1].split(', ')))}]"

    def block(found: re.Match[str]) -> str:
        indent, _, _ = found[0].partition("- ")
        names = [line.split("- ")[1] for line in found[0].splitlines()]
        return "".join(f"{indent}- {name}\n" for name in _all_of(names))

    return _BLOCK_LIST.sub(block, _FLOW_LIST.sub(flow, text))


def _all_of(names: list[str]) -> list[str]:
    """Return for each plural the resource and the subresources that the first plural has."""
    first = PLURALS[0]
    parts = [name.removeprefix(first) for name in names if name.split("/")[0] == first]
    return [plural + part for plural in PLURALS for part in parts]


def state_metrics(text: str) -> str:
    """Return the configuration of kube-state-metrics with one entry for each kind."""

    def entries(found: re.Match[str]) -> str:
        first = found[0].split("    - groupVersionKind")[1]
        template = f"    - groupVersionKind{first}"
        return "".join(template.replace(f"kind: {KINDS[0]}}}", f"kind: {k}}}") for k in KINDS)

    return _METRICS.sub(entries, text)


def customization(text: str) -> str:
    """Return the kustomization of the CRDs with a line for each file."""
    head, _, _ = text.partition("resources:\n")
    files = sorted(crdgen.render(row.api for row in FRAMEWORKS.values()))
    return head + "resources:\n" + "".join(f"  - {name}\n" for name in files)


FILES: Final[Mapping[str, Callable[[str], str]]] = {
    "crds/Kustomization": customization,
    "manifests/base/roles.yaml": resources,
    "manifests/base/userroles.yaml": resources,
    "manifests/components/webhook/configuration.yaml": resources,
    "manifests/dashboards/kube-state-metrics.yaml": state_metrics,
}


def main() -> int:
    """Write the files, or with --check return 1 if any of them is not fresh."""
    stale = []
    for name, write in FILES.items():
        before = (ROOT / name).read_text()
        after = write(before)
        if after != before:
            stale.append(name)
            if "--check" not in sys.argv:
                (ROOT / name).write_text(after)
    for name in stale:
        print(f"{name}: {'is not fresh: run make crds' if '--check' in sys.argv else 'written'}")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
