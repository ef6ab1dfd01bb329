"""The images and the CI script, as far as can be said without building or running them."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import cast

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = [ROOT / "Dockerfile", ROOT / "docker" / "tool_service" / "Dockerfile"]

ids = pytest.mark.parametrize("image", IMAGES, ids=lambda path: str(path.relative_to(ROOT)))


def instructions(image: Path) -> list[tuple[str, str]]:
    """(instruction, its text) with continued lines joined."""
    lines = [line for line in image.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in joined.splitlines() if line.strip()]


def last_stage(image: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in instructions(image):
        if name == "FROM":
            found = {}
        found.setdefault(name, []).append(text)
    return found


@ids
def test_an_image_has_two_stages_and_takes_only_pinned_packages(image: Path) -> None:
    steps = instructions(image)
    assert [name for name, _ in steps].count("FROM") == 2
    installs = [text for name, text in steps if name == "RUN" and "pip install" in text]
    assert any("--require-hashes" in text for text in installs)
    assert all("--require-hashes" in text or "--no-deps" in text for text in installs)
    assert "pip install" not in " ".join(last_stage(image).get("RUN", []))


@ids
def test_an_image_runs_as_a_number_in_exec_form_with_a_health_check(image: Path) -> None:
    stage = last_stage(image)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", stage["USER"][-1])
    assert isinstance(json.loads(stage["ENTRYPOINT"][-1]), list)
    command = stage["HEALTHCHECK"][-1].partition("CMD ")[2]
    program = cast("list[str]", json.loads(command))
    assert program[1] == "-c"
    compile(program[2], "healthcheck", "exec")


def test_the_server_s_image_keeps_its_data_in_a_volume_and_listens_outside() -> None:
    stage = last_stage(ROOT / "Dockerfile")
    settings = " ".join(stage["ENV"])
    assert stage["VOLUME"] == ["/data"]
    assert "RUNWIRE_DATABASE_URL=sqlite:////data/runwire.db" in settings
    assert "RUNWIRE_HOST=0.0.0.0" in settings
    assert "/livez" in stage["HEALTHCHECK"][-1]
    assert "RUNWIRE_API_KEYS" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


@ids
def test_what_an_image_copies_is_there_and_not_ignored(image: Path) -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name, text in instructions(image):
        if name != "COPY" or text.startswith("--from"):
            continue
        for source in text.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source.removeprefix("./").split("/")[0] in kept, source


def pins(path: Path) -> dict[str, list[str]]:
    """Package and version → hashes."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if re.match(r"[a-z0-9]", line):
            current = found.setdefault(line.split()[0], [])
        elif "--hash=" in line:
            current.append(line.strip().removesuffix(" \\"))
    return found


def test_the_tool_service_has_the_same_pins_as_the_server() -> None:
    known = pins(ROOT / "requirements-dev.txt") | pins(ROOT / "requirements.txt")
    ours = pins(ROOT / "docker" / "tool_service" / "requirements.txt")
    assert ours.keys() <= known.keys()
    assert all(ours[name] == known[name] for name in ours)


def run_ci(folder: Path, make: str) -> subprocess.CompletedProcess[str]:
    """`.ci/run` of a copy, where `make` is a shell script of ours."""
    (folder / ".ci").mkdir()
    script = folder / ".ci" / "run"
    script.write_bytes((ROOT / ".ci" / "run").read_bytes())
    script.chmod(0o755)
    fake = folder / "bin" / "make"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{make}\n")
    fake.chmod(0o755)
    env = {"PATH": f"{fake.parent}:{os.environ['PATH']}", "LANG": "C", "TMPDIR": str(folder)}
    return subprocess.run([script], env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_ci_passes_and_prints_the_closing_line_last(tmp_path: Path) -> None:
    done = run_ci(tmp_path, '[ "$1" = test ] && echo "12 passed in 3.21s"; exit 0')
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "12 passed in 3.21s")


@pytest.mark.parametrize(
    "make",
    [
        '[ "$1" = test ] && echo "12 passed, 1 skipped in 3.21s"; exit 0',
        '[ "$1" = test ] && echo "12 passed, 1 xfailed in 3.21s"; exit 0',
        '[ "$1" = test ] && echo "2 skipped in 3.21s"; exit 0',
        '[ "$1" = test ] && echo "no tests ran in 0.01s"; exit 0',
        '[ "$1" = test ] && echo "1 failed, 2 passed in 3.21s" && exit 1; exit 0',
        '[ "$1" = lint ] && exit 1; echo "12 passed in 3.21s"',
        "exit 0",
    ],
)  # fmt: skip
def test_ci_fails_for_whatever_proves_nothing(make: str, tmp_path: Path) -> None:
    assert run_ci(tmp_path, make).returncode != 0


def test_ci_is_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
