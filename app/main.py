"""The web application: `create_app(settings)` builds everything; importing this module does nothing."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app import __version__
from app.api import docs_page, openapi, problems
from app.api.boundary import BoundaryMiddleware
from app.api.context import RequestIdMiddleware
from app.api.cors import cors
from app.api.loopback import LoopbackHostMiddleware
from app.api.requests import RequestEnds
from app.api.routes import (
    agents,
    callbacks,
    middleware,
    models,
    operations,
    results,
    runs,
    store,
    threads,
    tool_calls,
    tools,
)
from app.settings import Settings
from app.wiring import Parts, build

DESCRIPTION = "Runs LLM agents for other programs: post a run, watch its events, register your own tools over REST."


def create_app(settings: Settings) -> FastAPI:
    """The application and its parts (`app.state.parts`), started and stopped by its lifespan."""
    return app_of(build(settings))


def app_of(parts: Parts) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        await parts.start()
        try:
            yield
        finally:
            await parts.stop()

    app = bare_app()
    app.router.lifespan_context = lifespan
    app.state.parts = parts
    app.state.services = parts.services
    keyless = parts.services.keys.anonymous is not None
    app.add_middleware(LoopbackHostMiddleware, enabled=keyless, origins=parts.cors_origins)
    app.add_middleware(BoundaryMiddleware)
    if parts.cors_origins:  # around all that answers, so that a refusal can be read by the page, too
        app.add_middleware(cors, origins=parts.cors_origins)
    app.add_middleware(RequestIdMiddleware, ended=RequestEnds(parts.metrics and parts.metrics.answered))
    return app


def bare_app() -> FastAPI:
    """Routes and error handling only: enough to write the OpenAPI document."""
    app = FastAPI(
        title="Runwire",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for module in (runs, results, threads, store, agents, tools, tool_calls, callbacks, middleware, models, operations):
        app.include_router(module.router)
    app.router.routes[:0] = runs.shortcuts()
    app.router.routes += docs_page.routes()
    problems.install(app)
    openapi.install(app)
    return app
