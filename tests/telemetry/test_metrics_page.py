"""The rules for Prometheus in docs/metrics.md, taken from the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/metrics.md"
DOWN = 'tisfast_gpu_down{{device_id="0",gpu_uuid="GPU-a",instance="h:8002",reason="{}"}}'
LOSSES = 'tisfast_gpu_losses_total{device_id="0",gpu_uuid="GPU-a",instance="h:8002"}'
UUID = 'gpu_uuid="GPU-a",'
pytestmark = pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool of Debian's prometheus package")


@pytest.fixture
def rules(tmp_path):
    """The file, as an operator copies it."""
    (text,) = re.findall(r"```yaml\n(groups:.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "gpus.yml").write_text(text)
    return tmp_path / "gpus.yml"


def promtool(*arguments, folder):
    command = ["promtool", *arguments]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_promtool_takes_the_rules(rules):
    assert "4 rules found" in promtool("check", "rules", rules.name, folder=rules.parent)


@pytest.mark.parametrize(
    ("series", "values", "minute", "alert", "fires"),
    [
        (DOWN.format("hangs"), "0 1 1 1", "3m", "TisfastGpuHangs", True),
        (DOWN.format("hangs"), "0 1 0 0", "3m", "TisfastGpuHangs", False),
        (DOWN.format("hangs").replace(UUID, ""), "0 1 1 1", "3m", "TisfastGpuHangs", True),
        (DOWN.format("lost"), "0 1 1 1", "3m", "TisfastGpuLost", True),
        (DOWN.format("lost"), "1 1 1 1", "3m", "TisfastGpuLost", True),  # before the first scrape
        (DOWN.format("lost"), "0 1 1 0", "3m", "TisfastGpuLost", False),
        (DOWN.format("unusable"), "1 1 1 1", "3m", "TisfastGpuUnusable", True),  # before the first scrape
        (DOWN.format("unusable"), "1 1 1 0", "3m", "TisfastGpuUnusable", False),
        (DOWN.format("unusable"), "1 1 1 1", "3m", "TisfastGpuLost", False),
        (LOSSES, "0 1 1 1", "3m", "TisfastGpuWasLost", True),
        (LOSSES.replace(UUID, ""), "0 1 1 1", "3m", "TisfastGpuWasLost", True),
        (LOSSES, "0 1x20", "20m", "TisfastGpuWasLost", False),
        (LOSSES, "1 1 1 1", "3m", "TisfastGpuWasLost", False),  # before the first scrape
    ],
)
def test_the_alerts_begin_and_end_as_the_page_says(rules, series, values, minute, alert, fires):  # noqa: PLR0917
    seen = {"eval_time": minute, "alertname": alert, "exp_alerts": []}
    if fires:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
        (rule,) = re.findall(rf"alert: {alert}\n(.*?)(?:- alert|\Z)", rules.read_text(), re.DOTALL)
        notes = dict(re.findall(r'(summary|description): "(.*)"', rule))
        uuid = f" ({labels['gpu_uuid']})" if "gpu_uuid" in labels else ""
        for name, text in notes.items():
            filled = text.replace("{{ with $labels.gpu_uuid }} ({{ . }}){{ end }}", uuid)
            notes[name] = re.sub(r"{{ [$]labels[.](\w+) }}", lambda found: labels[found[1]], filled)
        seen["exp_alerts"] = [{"exp_labels": labels, "exp_annotations": notes}]
    tests = {
        "rule_files": [rules.name],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values}],
                "alert_rule_test": [seen],
            }
        ],
    }
    (rules.parent / "gpus-test.yml").write_text(json.dumps(tests))  # JSON is YAML
    promtool("test", "rules", "gpus-test.yml", folder=rules.parent)
