"""Built-in middleware whose config is a pydantic model: checked once, at the border, and read back where a run begins."""

from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

from app.agent.middleware import Middleware
from app.runs.middleware.kinds import Config, Scope
from app.runs.spec import Spec
from app.runs.validation import check

ConfigT = TypeVar("ConfigT", bound=Spec)


class SpecKind(Generic[ConfigT]):
    """Base of the built-in kinds."""

    name: ClassVar[str]
    description: ClassVar[str]
    spec: type[ConfigT]
    state_schema: Mapping[str, Mapping[str, object]] = {}

    @property
    def config_schema(self) -> Mapping[str, object]:
        return self.spec.model_json_schema()

    async def pin(self, tenant: str, config: Config, pointer: str, old: Config | None = None) -> Config:
        return self.dumped(check(self.spec, dict(config), at=pointer))

    def dumped(self, spec: ConfigT) -> dict[str, object]:
        return spec.model_dump(exclude_unset=True, by_alias=True, mode="json")

    def label(self, config: Config) -> str:
        return self.name

    async def bind(self, config: Config, scope: Scope) -> Middleware:
        return await self.made(self.spec.model_validate(dict(config)), scope)

    async def made(self, spec: ConfigT, scope: Scope) -> Middleware:
        """The middleware of one run."""
        raise NotImplementedError
