"""The middleware that the server brings itself."""

from collections.abc import Sequence

from app.runs.middleware.dynamic_model import DynamicModelKind
from app.runs.middleware.guardrail import GuardrailKind
from app.runs.middleware.http_hook import HttpHookKind
from app.runs.middleware.kinds import Kind
from app.runs.middleware.model_fallback import ModelFallbackKind
from app.runs.middleware.models import ModelPins
from app.runs.middleware.pii import PiiKind
from app.runs.middleware.summarization import SummarizationKind


def built_in(models: ModelPins, http: HttpHookKind, plugins: Sequence[str] = ()) -> Sequence[Kind]:
    """All of them, made once. `plugins`: `module[:attr]` names of what they may be told to use."""
    return (
        DynamicModelKind(models),
        GuardrailKind.load(plugins),
        http,
        ModelFallbackKind(models),
        PiiKind(),
        SummarizationKind(models),
    )
