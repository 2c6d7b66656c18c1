"""`/metrics`, read by Prometheus's own parser."""

from __future__ import annotations

import pytest

import rlx
from rlx.serve.metrics import MetricCounter
from tests.serve.serving import RunningServer, ScriptedModel

parser = pytest.importorskip("prometheus_client.parser")


def test_numbers(model: rlx.llm.LLM) -> None:
    with RunningServer(ScriptedModel(model, "some text", cached_tokens=1)) as running, running.client() as client:
        for _ in range(3):
            client.completions.create(model="tiny", prompt="the man")
        running.get("/nothing")
        running.wait_for_idle()
        answer = running.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in parser.text_string_to_metric_families(answer.text)}
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value for f in families.values() for sample in f.samples
    }
    route = ("route", "/v1/completions")
    assert samples["rlx_requests_total", route, ("status", "200")] == 3
    assert samples["rlx_requests_total", ("route", "other"), ("status", "404")] == 1
    assert samples["rlx_request_seconds_count", route] == 3
    assert samples["rlx_request_seconds_bucket", ("le", "+Inf"), route] == 3
    assert samples[("rlx_first_token_seconds_count",)] == 3
    prompt = len(model.tokenizer.encode("the man"))
    assert samples[("rlx_prompt_tokens_total",)] == 3 * prompt
    assert samples[("rlx_cached_tokens_total",)] == 3
    assert samples[("rlx_generated_tokens_total",)] == 9
    assert samples[("rlx_requests_running",)] == samples[("rlx_requests_waiting",)] == 0
    assert {families[name].type for name in ("rlx_requests", "rlx_generated_tokens")} == {"counter"}
    assert families["rlx_request_seconds"].type == "histogram"
    buckets = [s.value for s in families["rlx_request_seconds"].samples if s.labels.get("route") == "/v1/completions"]
    assert buckets[:-2] == sorted(buckets[:-2])


def test_labels_are_escaped() -> None:
    counter = MetricCounter("a", "Text.", ("name",))
    hostile = 'x"} 1\n# TYPE b gauge\\'
    counter.add(2.5, hostile)
    (family,) = parser.text_string_to_metric_families("\n".join(counter.lines()) + "\n")
    (sample,) = family.samples
    assert sample.labels == {"name": hostile} and sample.value == 2.5
