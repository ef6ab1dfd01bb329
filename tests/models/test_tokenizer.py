"""The tokenizer: counters are found once a model, and whatever goes wrong there leaves the estimate."""

import asyncio
import importlib
import sys
import threading
from pathlib import Path

import pytest

from app.agent.trimming import CountTokens, estimate_tokens
from app.models import tokenizer
from app.models.tokenizer import Tokenizers

pytestmark = pytest.mark.anyio


async def test_each_model_is_looked_for_once() -> None:
    asked: list[str] = []

    def load(model: str) -> CountTokens | None:
        asked.append(model)
        return len if model == "known" else None

    found = Tokenizers(load)
    for _ in range(2):
        assert await found.counter("known") is len
        assert await found.counter("other") is estimate_tokens
    assert asked == ["known", "other"]


async def test_a_library_that_fails_leaves_the_estimate() -> None:
    def load(model: str) -> CountTokens | None:
        raise OSError("no network")

    assert await Tokenizers(load).counter("m") is estimate_tokens


async def test_a_library_that_hangs_leaves_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "LOAD_S", 0.01)
    release = threading.Event()

    def load(model: str) -> CountTokens | None:
        release.wait(20)
        return len

    try:
        async with asyncio.timeout(10):
            assert await Tokenizers(load).counter("m") is estimate_tokens
    finally:
        release.set()


async def test_without_tiktoken_there_is_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> None:
        return None

    monkeypatch.setattr(tokenizer.importlib.util, "find_spec", nothing)
    assert await Tokenizers().counter("m") is estimate_tokens


async def test_tiktoken_counts_for_the_models_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the optional library, with its two calls that are used; what it takes for a token is a word."""
    (tmp_path / "tiktoken.py").write_text(
        "class Encoding:\n"
        "    def encode_ordinary(self, text): return text.split()\n"
        "def encoding_for_model(name): return {'gpt-x': Encoding()}[name]\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "tiktoken", raising=False)
    found = Tokenizers()
    assert (await found.counter("gpt-x"))("three <|endoftext|> words") == 3
    assert await found.counter("claude-x") is estimate_tokens
    monkeypatch.delitem(sys.modules, "tiktoken", raising=False)


async def test_loading_does_not_block_the_loop() -> None:
    release = threading.Event()

    def load(model: str) -> CountTokens | None:
        assert release.wait(10), "the loop did not go on"
        return len

    async with asyncio.timeout(10):
        found = asyncio.create_task(Tokenizers(load).counter("m"))
        await asyncio.sleep(0)
        release.set()
        assert await found is len


async def test_a_cancelled_caller_is_cancelled() -> None:
    release = threading.Event()

    def load(model: str) -> CountTokens | None:
        release.wait(20)
        return len

    found = Tokenizers(load)
    waiting = asyncio.create_task(found.counter("m"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    async with asyncio.timeout(10):
        assert await found.counter("m") is len
