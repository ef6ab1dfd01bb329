"""The set of model plugins: providers in Python, found at start-up, behind a wall that their faults do not pass."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import cast

import structlog

from app.agent.ports import ChatModel, Delta, ModelAnswer, ModelRequest
from app.core.errors import ModelError
from app.core.ids import NAME_PATTERN, new_id
from app.core.plugins import PluginError, load_plugins
from app.models.failures import clean
from app.models.plugin_api import ModelPlugin
from app.models.plugin_items import DELTAS, WrongItem, checked_answer, checked_delta
from app.models.plugin_stream import END, PluginStream
from app.models.spec import PROVIDERS

ENTRY_POINT_GROUP = "runwire.models"

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ModelPlugins:
    """Providers by name. Made once, at start-up."""

    def __init__(self, plugins: Iterable[ModelPlugin] = ()) -> None:
        """Raises `PluginError`: a wrong name, a built-in provider's name, two of one name."""
        self._plugins: dict[str, ModelPlugin] = {}
        for plugin in plugins:
            if not isinstance(plugin.name, str) or not re.fullmatch(NAME_PATTERN, plugin.name):
                raise PluginError(f"Plugin model {plugin.name!r}: a name must match {NAME_PATTERN}.")
            if plugin.name in PROVIDERS:
                raise PluginError(f"Plugin model {plugin.name!r}: this is a provider of the server's own; rename it.")
            if plugin.name in self._plugins:
                raise PluginError(f"There are two plugin models named {plugin.name!r}; rename one.")
            self._plugins[plugin.name] = plugin
        self.names: Sequence[str] = sorted(self._plugins)
        """In name order."""

    @classmethod
    def load(cls, names: Sequence[str] = (), *, entry_points: bool = True) -> "ModelPlugins":
        """From `module[:attr]` names, then the entry points of group `runwire.models`. Raises `PluginError`."""
        return cls(load_plugins(ModelPlugin, names, ENTRY_POINT_GROUP if entry_points else None))

    def describe(self, name: str) -> dict[str, object]:
        """What callers may know of a plugin that there is."""
        plugin = self._plugins[name]
        return {
            "name": name,
            "source": "plugin",
            "provider": name,
            "model": None,
            "description": plugin.description or None,
            "prices": None,
        }

    def build(self, name: str, model: str, params: Mapping[str, object]) -> ChatModel | None:
        """A run's model; `None` for an unknown provider. Raises `ModelError`."""
        plugin = self._plugins.get(name)
        if plugin is None:
            return None
        try:
            made = plugin.factory(model, dict(params))
        except Exception as error:  # noqa: BLE001  # the named boundary: foreign code behind it
            raise _failure(name, error) from None
        if not callable(getattr(made, "stream", None)):
            raise _invalid(name, "its factory gave no ChatModel: an object with a method `stream`")
        return PluginModel(name, model, made)


class PluginModel:
    """A plugin's model behind the wall: what it yields is checked, what it raises becomes a `ModelError`."""

    def __init__(self, provider: str, model: str, inner: ChatModel) -> None:
        self._provider = provider
        self._model = model
        self._inner = inner

    @property
    def name(self) -> str:
        return self._model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
        """Raises `ModelError`: the plugin's own, `model_plugin_failed`, `model_invalid_response`."""
        answer: ModelAnswer | None = None
        items = PluginStream(self._open(request), self._provider)
        try:
            while True:
                try:
                    item = await items.next()
                except (Exception, SystemExit) as error:  # noqa: BLE001  # the named boundary: foreign code behind it
                    raise _failure(self._provider, error) from None
                if item is END:
                    break
                if answer is not None:
                    raise _invalid(self._provider, "it went on after its ModelAnswer, which must be the last")
                try:
                    if isinstance(item, ModelAnswer):
                        answer = checked_answer(item, self._model)
                        continue
                    if not isinstance(item, DELTAS):
                        raise WrongItem(f"it yielded a {type(item).__name__}; deltas and one ModelAnswer are wanted")
                    delta = checked_delta(cast("Delta", item))
                except WrongItem as error:
                    raise _invalid(self._provider, str(error)) from error
                if request.stream:
                    yield delta
        finally:
            await items.close()
        if answer is None:
            raise _invalid(self._provider, "it ended without a ModelAnswer")
        yield answer

    def _open(self, request: ModelRequest) -> AsyncGenerator[object]:
        try:
            items: object = self._inner.stream(request)
        except Exception as error:  # noqa: BLE001  # the named boundary: foreign code behind it
            raise _failure(self._provider, error) from None
        if isinstance(items, AsyncGenerator):
            return cast("AsyncGenerator[object]", items)
        if asyncio.iscoroutine(items):
            items.close()  # else Python warns that nobody awaited it
        raise _invalid(self._provider, "its `stream` is not an async generator")


def _invalid(provider: str, detail: str) -> ModelError:
    return ModelError(f"The model plugin `{provider}` broke its contract: {detail}.", code="model_invalid_response")


def _failure(provider: str, error: BaseException) -> ModelError:
    """A deliberate `ModelError` as it is, its text made fit; anything else as a general sentence, its text in the log only."""
    if isinstance(error, ModelError) and isinstance(error.code, str) and _CODE.fullmatch(error.code):
        return ModelError(clean(str(error.message)), code=error.code, retryable=error.retryable is True)
    request_id = new_id()
    _log.error("model_plugin_failed", provider=provider, request_id=request_id, exc_info=error)
    return ModelError(
        f"The model plugin `{provider}` failed. (request {request_id})",
        code="model_plugin_failed",
        request_id=request_id,
    )
