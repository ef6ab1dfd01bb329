"""The baseline: the least a FastAPI user would write to stream the same bytes, with nothing behind it.

`python -m benchmarks.bare PIECES.json PORT`, served as Runwire serves itself (uvloop, httptools, no access log).
"""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse


def create_app(pieces: list[bytes]) -> FastAPI:
    app = FastAPI()

    async def events() -> AsyncGenerator[bytes]:
        for piece in pieces:
            yield piece

    async def stream(request: Request) -> StreamingResponse:
        await request.body()
        return StreamingResponse(events(), media_type="text/event-stream")

    async def ready() -> dict[str, bool]:
        return {"ready": True}

    app.post("/runs/stream")(stream)
    app.get("/ready")(ready)
    return app


if __name__ == "__main__":
    texts = json.loads(Path(sys.argv[1]).read_text())
    application = create_app([text.encode() for text in texts])
    uvicorn.run(application, port=int(sys.argv[2]), log_config=None, access_log=False, server_header=False)
