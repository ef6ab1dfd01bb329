"""Series: our plain numbers against prometheus_client's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from app.observability.exposition import render
from app.observability.run_metrics import CALL_S, UNKNOWN_TOOL, RunMetrics
from app.observability.series import OTHER, Counters, Gauge, Histograms, Names

LABELS = st.text(max_size=20).filter(lambda text: text.isprintable() or "\n" in text)


@given(st.lists(st.floats(0, 10_000) | st.sampled_from(CALL_S), max_size=50))
def test_a_histogram_has_the_buckets_that_the_library_would_make(values: list[float]) -> None:
    ours = Histograms("x_seconds", "Help.", "kind", bounds=CALL_S)
    registry = CollectorRegistry()
    theirs = Histogram("x_seconds", "Help.", ("kind",), registry=registry, buckets=CALL_S)
    for value in values:
        ours.of("a").observe(value)
        theirs.labels("a").observe(value)
    counts = ours.of("a").counts
    for bound, below in zip(CALL_S, [sum(counts[: place + 1]) for place in range(len(CALL_S))], strict=True):
        said = registry.get_sample_value("x_seconds_bucket", {"kind": "a", "le": str(float(bound))})
        assert said == below if values else said in (0, None)
    assert sum(counts) == len(values)


@given(LABELS)
def test_any_label_comes_back_as_it_was(value: str) -> None:
    counters = Counters("x_total", "Help.", "name")
    counters.of(value).value = 3
    body, _ = render([counters], [], [Gauge("y", "Help.", 1, {"name": value})], "")
    found = {
        sample.name: (sample.labels, sample.value)
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    assert found["x_total"] == ({"name": value}, 3)
    assert found["y"] == ({"name": value}, 1)


def test_names_beyond_the_bound_count_together() -> None:
    names = Names(2)
    assert [names.label(name) for name in ("a", "b", "c", "a", "d", "b")] == ["a", "b", OTHER, "a", OTHER, "b"]


def test_a_wrong_number_of_labels_is_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="x_total has the labels a, b"):
        Counters("x_total", "Help.", "a", "b").of("1")


def test_500_models_and_tools_keep_200_names_each() -> None:
    metrics = RunMetrics()
    for number in range(500):
        metrics.of_model({"provider": "openai", "model": f"model-{number}"})
        metrics.of_tool(f"tool_{number}", "registered", "write")
    metrics.of_tool(UNKNOWN_TOOL, "none", "none")
    models = {labels[1] for labels, _ in metrics.model_seconds.items()}
    tools = {labels[0] for labels, _ in metrics.tool_attempts.items()}
    assert len(models) == 201
    assert OTHER in models
    assert len(tools) == 202
    assert {OTHER, UNKNOWN_TOOL} <= tools


def test_a_tenants_own_address_names_no_model() -> None:
    metrics = RunMetrics()
    own = {"provider": "openai", "base_url": "https://models.tenant.example/v1"}
    assert metrics.of_model({**own, "model": "a"}) is metrics.of_model({**own, "model": "b"})
    assert [labels for labels, _ in metrics.tokens.items()] == [
        ("openai", "_inline", "input"),
        ("openai", "_inline", "output"),
    ]
