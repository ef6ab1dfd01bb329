"""AgentExecutor's observed behaviour as data, by case id."""

import json
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for line in (Path(__file__).parent / "executor.jsonl").read_text(encoding="utf-8").splitlines()
    for case in [json.loads(line)]
}
