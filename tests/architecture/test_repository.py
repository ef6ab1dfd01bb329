"""What must be in no file: addresses of registries, paths of someone's machine. And what the top level holds."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TOP_LEVEL = {
    ".ci", ".dockerignore", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "Makefile", "README.md",
    "SECURITY.md", "app", "benchmarks", "docker", "docker-compose.yml", "docs", "examples", "openapi", "pyproject.toml",
    "requirements-dev.txt", "requirements.txt", "runwire.py", "setup.py", "tests",
}  # fmt: skip

# Written in pieces, so that this file does not hold what it looks for.
FOREIGN = re.compile(
    "|".join(
        (
            "--(?:extra-)?index" + "-url",
            "--find" + "-links",
            r"(?:^|[\s\"'=(])/(?:home|Users|root|work)" + r"/[\w.-]+",
            r"https?://[\w.-]*(?:pypi|artifactory|nexus|devpi|jfrog|packagecloud)" + r"[\w.-]*",
        )
    ),
    re.MULTILINE,
)
ALLOWED = {"Makefile": ("--no-emit-index" + "-url", "--no-emit-find" + "-links")}
"""The options that keep such addresses out of the requirement files."""


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_path_of_a_machine() -> None:
    found: list[str] = []
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="replace")
        for allowed in ALLOWED.get(path.name, ()):
            text = text.replace(allowed, "")
        found += [f"{path.relative_to(ROOT)}: {match.group().strip()}" for match in FOREIGN.finditer(text)]
    assert found == []


def test_the_top_level_holds_what_it_should() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} - TOP_LEVEL == set()


def test_no_symbolic_link_is_committed() -> None:
    """Not every system can make them, and archives of a repository may drop them."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-s"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.splitlines()
    assert len(listed) > 100
    assert [line for line in listed if line.startswith("120000 ")] == []
