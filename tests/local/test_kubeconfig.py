# SPDX-License-Identifier: Apache-2.0
"""What is taken over from somebody's kubeconfig."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from muster.local import handle, kubeconfig

TWO = """
apiVersion: v1
kind: Config
current-context: second
clusters:
- {name: one, cluster: {server: https://one.example.com}}
- {name: two, cluster: {server: https://two.example.com, certificate-authority: pki/ca.crt}}
users:
- {name: me, user: {token: secret}}
- {name: other, user: {client-certificate: /etc/me.crt, client-key: me.key}}
- {name: asks, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./bin/login}}}
contexts:
- {name: first, context: {cluster: one, user: me}}
- {name: second, context: {cluster: two, user: other, namespace: team}}
- {name: third, context: {cluster: two, user: asks}}
"""


def taken(folder: Path, text: str) -> dict:
    """Write a kubeconfig and take over what it has chosen."""
    path = folder / "config"
    path.write_text(text)
    return yaml.safe_load(kubeconfig.only_current(path))


def test_only_the_chosen_context_is_taken_over(tmp_path: Path) -> None:
    """Whatever is chosen later, it stays with that cluster; files are found from anywhere."""
    found = taken(tmp_path, TWO)
    assert found["current-context"] == "second"
    assert [one["name"] for one in found["contexts"]] == ["second"]
    assert found["contexts"][0]["context"]["namespace"] == "team"
    (cluster,), (user,) = found["clusters"], found["users"]
    assert cluster["cluster"] == {
        "server": "https://two.example.com",
        "certificate-authority": str(tmp_path / "pki" / "ca.crt"),
    }
    assert user["user"] == {
        "client-certificate": "/etc/me.crt",
        "client-key": str(tmp_path / "me.key"),
    }


def test_a_login_program_beside_the_kubeconfig_is_found(tmp_path: Path) -> None:
    """One without a folder is looked for on PATH, as ever."""
    text = TWO.replace("current-context: second", "current-context: third")
    assert taken(tmp_path, text)["users"][0]["user"]["exec"]["command"] == str(
        tmp_path / "bin" / "login"
    )
    bare = text.replace("./bin/login", "login")
    assert taken(tmp_path, bare)["users"][0]["user"]["exec"]["command"] == "login"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no YAML"),
        ("[]", "no kubeconfig"),
        ("clusters: []", "no current-context"),
        ("current-context: x", "no context 'x'"),
        (TWO.replace("cluster: two,", "cluster: three,"), "no cluster 'three'"),
        (TWO.replace("user: other", "user: nobody"), "no user 'nobody'"),
        (TWO.replace("server: https://two.example.com, ", ""), "'two' has no server"),
    ],
)
def test_a_file_that_names_no_cluster_says_why(text: str, reason: str, tmp_path: Path) -> None:
    """Before anything is started or written."""
    with pytest.raises(handle.CredentialsError, match=reason):
        taken(tmp_path, text)
