"""Environments of a user: a fresh virtualenv with Runwire in it, as a wheel or editable, and with what Runwire needs.

The packages come from the environment that runs the tests, by a path in a `.pth` file. Python does not follow the
`.pth` files that lie there, so an editable install there has no part in it.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZipFile

from tests.support.server import RunwireServer

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
PARTS = ("app", "runwire.py", "setup.py", "pyproject.toml", "README.md", "LICENSE")
"""What the image, too, is built from."""

_PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
_OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """To its end, with no setting of Runwire but those in `env`, and nothing on Python's path but what that says."""
    return subprocess.run(
        command, cwd=cwd, env=clean() | dict(env or {}), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def clean() -> dict[str, str]:
    prefixes = ("RUNWIRE_", "OPENAI_", "ANTHROPIC_", "OTEL_", "PYTHONPATH", "PYTHONSAFEPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def output(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """What a command printed that has to succeed."""
    done = run(*command, cwd=cwd, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_of_the_repository(place: Path) -> Path:
    """Builds write into the folder that they build; this one is theirs."""
    place.mkdir(parents=True)
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place / name)
    return place


def build_wheel(folder: Path) -> Path:
    """A wheel of the repository by way of its source distribution, and one made directly, which must hold the same."""
    source = copy_of_the_repository(folder / "source")
    left = source / "build" / "lib" / "app"  # a build before this one left it, and the module is no more
    left.mkdir(parents=True)
    (left / "gone.py").touch()
    (folder / "direct").mkdir()
    program = (
        "from setuptools import build_meta\n"
        f"build_meta.build_sdist({str(folder)!r})\n"
        f"build_meta.build_wheel({str(folder / 'direct')!r})\n"
    )
    output(sys.executable, "-c", program, cwd=source)
    (archive,) = folder.glob("*.tar.gz")
    output(sys.executable, *_PIP, "wheel", *_OFFLINE, "-w", folder, archive, cwd=folder)
    (wheel,), (direct,) = folder.glob("*.whl"), (folder / "direct").glob("*.whl")
    with ZipFile(wheel) as one, ZipFile(direct) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())
    return wheel


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtualenv with Runwire."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, *install: str | Path) -> "Environment":
        """`install`: what pip is to install: a wheel, or `-e` and a folder."""
        output(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
        made = cls(folder)
        (packages,) = (folder / "lib").glob("python*/site-packages")
        (packages / "present.pth").write_text(sysconfig.get_path("purelib") + "\n")
        python = str(made.bin("python"))
        output(sys.executable, *_PIP, "--python", python, "install", *_OFFLINE, *install, cwd=folder.parent)
        return made

    def bin(self, name: str) -> Path:
        return self.folder / "bin" / name


@dataclass(slots=True)
class InstalledServer(RunwireServer):
    """`runwire serve` of such an environment."""

    environment: Environment = field(kw_only=True)

    def spawn(self) -> "subprocess.Popen[bytes]":  # pyright: ignore[reportImplicitOverride]
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [self.environment.bin("runwire"), "serve", "--port", "0", *self.args],
                cwd=self.folder,
                env=clean() | dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
