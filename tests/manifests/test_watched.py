# SPDX-License-Identifier: Apache-2.0
"""Alerts, the dashboard and the file for kube-state-metrics speak of what there is."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gotools
import pytest
import yaml
from prometheus_client.exposition import generate_latest

from muster import frameworks
from muster.api.reasons import HOPELESS
from muster.runtime.metrics import Metrics

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
CRDS = ROOT / "crds"
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "unknown": ("",),
}
WORDS = re.compile(r"[a-zA-Z_]\w*")
LABELS = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")
QUOTED = re.compile(r'"[^"]*"')
FUNCTIONS = {
    "absent", "and", "by", "count", "histogram_quantile", "increase", "label_values", "rate",
    "sum", "time",
}  # fmt: skip

PROMTOOL = gotools.find("promtool")
STORIES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("alerts.yaml").read_text())
REPLICAS = {'muster_leader{pod="muster-0"}': "1x999", 'muster_leader{pod="muster-1"}': "0+0x999"}

with_promtool = pytest.mark.skipif(not PROMTOOL, reason="no promtool (make promtool builds it)")


def rules() -> list[dict[str, Any]]:
    """Return the alerts."""
    document = yaml.safe_load((MANIFESTS / "components/monitoring/rules.yaml").read_text())
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    found: dict[str, Any] = json.loads((MANIFESTS / "dashboards/muster.json").read_text())
    return found


def expressions() -> Iterator[str]:
    """Yield every expression of both."""
    yield from (rule["expr"] for rule in rules())
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def served() -> dict[str, set[str]]:
    """Return the names under which numbers are served -> their labels, where some are known."""
    return {
        metric.name + suffix: {label for sample in metric.samples for label in sample.labels}
        for metric in Metrics().registry.collect()
        for suffix in SUFFIXES[metric.type]
    }


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_expressions_name_what_is_served(expression: str) -> None:
    """A metric that is renamed takes its alert along."""
    bare = QUOTED.sub("", expression).replace("$__rate_interval", "5m")
    labels = {label.strip() for found in LABELS.findall(bare) for label in found.split(",")}
    plain = LABELS.sub("", re.sub(r"\{[^}]*\}|\[[^\]]*\]|,\s*resource\)", "", bare))
    names = set(WORDS.findall(plain)) - FUNCTIONS
    assert names, expression
    assert names <= set(served()), names - set(served())
    assert labels <= {
        "action", "code", "job_namespace", "kind", "le", "reason", "resource", "result", "state",
        "verb", "version",
    }  # fmt: skip


def test_the_reasons_that_no_load_removes_are_those_of_the_verdicts() -> None:
    """`everPossible: false` and the alert say the same."""
    (rule,) = (rule for rule in rules() if rule["alert"] == "MusterGangCanNeverStart")
    (named,) = re.findall(r'reason=~"([^"]*)"', rule["expr"])
    assert sorted(named.split("|")) == sorted(HOPELESS)


def test_alerts_say_what_to_look_at() -> None:
    """Each has a severity, a sentence and what to do; no two have one name."""
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 15
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        for words in rule["annotations"].values():
            assert words.endswith("."), words
            for label in re.findall(r"\$labels\.(\w+)", words):
                named = re.search(rf"by \([^)]*\b{label}\b", rule["expr"])
                assert named or label in {"queue", "resource", "reason"}, words


def test_kube_state_metrics_reads_what_the_jobs_have() -> None:
    """Every kind, and every path is one of its schema."""
    config = yaml.safe_load((MANIFESTS / "dashboards/kube-state-metrics.yaml").read_text())
    assert config["kind"] == "CustomResourceStateMetrics"
    resources = {one["groupVersionKind"]["kind"]: one for one in config["spec"]["resources"]}
    assert set(resources) == {row.kind for row in frameworks.rows()}
    for kind, one in resources.items():
        assert one["groupVersionKind"]["group"] == "kubeflow.org"
        schema = _schema(kind, one["groupVersionKind"]["version"])
        for metric in one["metrics"]:
            (how,) = (part for key, part in metric["each"].items() if key != "type")
            found = _at(schema, how["path"])
            inner = found.get("items") or found.get("additionalProperties") or found
            for path in (*how.get("labelsFromPath", {}).values(), how.get("valueFrom", [])):
                _at(inner, path)


def _schema(kind: str, version: str) -> dict[str, Any]:
    text = (CRDS / f"kubeflow.org_{kind.lower()}s.yaml").read_text()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # seconds less for large schemas
    (found,) = (v for v in yaml.load(text, loader)["spec"]["versions"] if v["name"] == version)
    schema: dict[str, Any] = found["schema"]["openAPIV3Schema"]
    return schema


def _at(schema: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for name in path:
        assert name in schema["properties"], (path, sorted(schema["properties"]))
        schema = schema["properties"][name]
    return schema


def promtool(*words: str | Path, sent: str = "") -> subprocess.CompletedProcess[str]:
    """Run it."""
    return subprocess.run(
        [PROMTOOL, *words], input=sent, capture_output=True, text=True, check=False
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write the rules as Prometheus takes them, who knows no PrometheusRule."""
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "muster", "rules": rules()}]}))
    return file


@with_promtool
def test_prometheus_reads_the_alerts(file: Path) -> None:
    """Expressions, times and templates; and says of a wrong one that it is."""
    good = promtool("check", "rules", "--lint=all", "--lint-fatal", file)
    assert good.returncode == 0, good.stdout + good.stderr
    assert f"SUCCESS: {len(rules())} rules found" in good.stdout
    file.write_text(file.read_text().replace("absent(", "absent((", 1))
    assert promtool("check", "rules", file).returncode


@with_promtool
def test_prometheus_reads_the_dashboard(tmp_path: Path) -> None:
    """With what Grafana writes for its variables."""
    asked = {each for each in expressions() if not each.startswith("label_values(")}
    plain = [each.replace("$__rate_interval", "5m").replace("$resource", "cpu") for each in asked]
    assert not [each for each in plain if "$" in each]
    recorded = [{"record": f"panel:{i}", "expr": each} for i, each in enumerate(sorted(plain))]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    read = promtool("check", "rules", file)
    assert read.returncode == 0, read.stdout + read.stderr


@with_promtool
def test_prometheus_reads_what_is_served() -> None:
    """What it would name otherwise is kube-batch's and training-operator's, who did first."""
    read = promtool("check", "metrics", sent=generate_latest(Metrics().registry).decode())
    said = (read.stdout + read.stderr).splitlines()
    assert read.returncode in {0, 3}, said
    ours = [line for line in said if line.startswith("muster_")]
    assert not ours


@with_promtool
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story["story"])
def test_alerts_are_there_when_they_should(story: dict[str, Any], file: Path) -> None:
    """Those that are named at a time, and at that time no other."""
    found = promtool("test", "rules", written(story, file))
    assert found.returncode == 0, found.stdout + found.stderr


def test_each_alert_is_told_of() -> None:
    """That it is there, and that it is not while there is what it looks at."""
    told = {alert for story in STORIES for alerts in story["at"].values() for alert in alerts}
    assert told == {rule["alert"] for rule in rules()}
    quiet = [story for story in STORIES if {} in story["at"].values()]
    assert quiet == STORIES


def written(story: dict[str, Any], file: Path) -> Path:
    """Write a story as promtool's test of the rules in a file."""
    series = REPLICAS | story["series"]
    alerts = {rule["alert"]: rule for rule in rules()}
    expected = [
        {
            "eval_time": time,
            "alertname": name,
            "exp_alerts": [_said(rule, dict(each)) for each in story["at"][time].get(name, ())],
        }
        for time in story["at"]
        for name, rule in alerts.items()
    ]
    test = {
        "rule_files": [str(file)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": story.get("every", "1m"),
                "input_series": [{"series": s, "values": v} for s, v in series.items()],
                "alert_rule_test": expected,
            }
        ],
    }
    place = file.with_name("story.yaml")
    place.write_text(yaml.safe_dump(test))
    return place


def _said(rule: dict[str, Any], each: dict[str, str]) -> dict[str, Any]:
    annotations = {**rule["annotations"], "summary": each.pop("says")}
    return {"exp_labels": {**rule["labels"], **each}, "exp_annotations": annotations}
