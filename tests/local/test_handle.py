# SPDX-License-Identifier: Apache-2.0
"""The flags that components are started with."""

from __future__ import annotations

import pytest

from muster.local import handle, layout, options

GATED = (handle.API_SERVER, handle.CONTROLLER_MANAGER, handle.SCHEDULER)


def flags(component: str, **asked: object) -> dict[str, str]:
    """Return flag -> value of a component."""
    wanted = options.Options(**asked)  # type: ignore[arg-type]
    given = handle.arguments(component, layout.Layout("x"), wanted, 6443)
    return dict(flag.partition("=")[::2] for flag in given)


@pytest.mark.parametrize(
    ("version", "api", "gates"),
    [
        ("1.37.1", "v1beta1", "GenericWorkload=true"),
        ("1.40.0", "v1beta1", "GenericWorkload=true"),
        (
            "1.36.3",
            "v1alpha2",
            "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true",
        ),
    ],
)
def test_native_gangs_are_switched_on_as_the_version_has_them(
    version: str, api: str, gates: str
) -> None:
    """An API server refuses to start with a gate or an API that it does not know."""
    asked = {"native_gangs": True, "kubernetes_version": version}
    assert {flags(name, **asked)["--feature-gates"] for name in GATED} == {gates}
    config = flags(handle.API_SERVER, **asked)["--runtime-config"]
    assert config == f"scheduling.k8s.io/{api}=true"


def test_without_native_gangs_no_gate_is_touched() -> None:
    """What is tested is what clusters are by default."""
    for name in handle.SERVERS:
        assert not {"--feature-gates", "--runtime-config"} & flags(name).keys()
