"""The committed OpenAPI document: written from, and compared with, what the server serves."""

import json
from pathlib import Path

from app.main import bare_app


def document() -> str:
    return json.dumps(bare_app().openapi(), indent=2, ensure_ascii=False) + "\n"


def write_document(path: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(document(), encoding="utf-8")


def check_document(path: str) -> str | None:
    """What differs: `None` when the file is current."""
    file = Path(path)
    if not file.is_file():
        return "the file is missing"
    return None if file.read_text(encoding="utf-8") == document() else "the content differs"
