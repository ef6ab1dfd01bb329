"""The images: checked by hadolint, and what they would run, run for real where their container would allow it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

import app
from tests.architecture.test_packaging import IMAGES, ROOT, last_stage

TIMEOUT_S = 30.0
BIN = Path(sys.executable).parent

LAUNCHER = """
import ctypes, os, sys
if os.getuid() == 0:  # root may write anywhere, unless it gives that up (the container has no capabilities at all)
    if ctypes.CDLL(None, use_errno=True).prctl(24, 1, 0, 0, 0):
        sys.exit("cannot drop CAP_DAC_OVERRIDE")
os.execv(sys.argv[1], sys.argv[1:])
"""

CANNOT_WRITE = (
    "import sys\ntry:\n    open('x', 'w')\nexcept OSError:\n    sys.exit(0)\nsys.exit('the folder is writable')"
)


def exec_form(image: Path, name: str) -> list[str]:
    return json.loads(last_stage(image)[name][-1].partition("CMD ")[2] or last_stage(image)[name][-1])


def environment(image: Path) -> dict[str, str]:
    """The variables that the image sets, without PATH."""
    settings = re.findall(r"(\w+)=(\S+)", " ".join(last_stage(image)["ENV"]))
    return {name: value for name, value in settings if name != "PATH"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(*args: str) -> list[str]:
    """As the container runs it: without the right to write where the mode forbids it."""
    return [sys.executable, "-c", LAUNCHER, str(BIN / args[0]), *args[1:]]


@contextmanager
def running(args: list[str], folder: Path, env: dict[str, str]) -> Generator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        args, cwd=folder / "root", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # both are little
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    """`root` is read-only, `data` is the volume, `tmp` the memory file system, `secrets` holds the secret files."""
    for name in ("root", "data", "tmp"):
        (tmp_path / name).mkdir()
    script = tmp_path / "make_secrets.sh"
    script.write_bytes((ROOT / "docker" / "make_secrets.sh").read_bytes())
    subprocess.run(["sh", str(script)], check=True, capture_output=True)
    (tmp_path / "root").chmod(0o555)
    yield tmp_path
    (tmp_path / "root").chmod(0o755)


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_hadolint_finds_nothing(image: Path) -> None:
    done = subprocess.run([str(BIN / "hadolint"), str(image)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_image_is_based_on_a_tag_that_can_be_replaced_by_a_digest(image: Path) -> None:
    text = image.read_text(encoding="utf-8")
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.\d+-slim-\w+$", text, re.MULTILINE)
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${PYTHON_IMAGE}", "${PYTHON_IMAGE}"]
    assert "PYTHONDONTWRITEBYTECODE=1" in " ".join(last_stage(image)["ENV"])
    assert "org.opencontainers.image.licenses" in " ".join(last_stage(image)["LABEL"])


def test_the_label_tells_the_version() -> None:
    assert f"VERSION={app.__version__}" in last_stage(ROOT / "Dockerfile")["ARG"]


def test_the_server_s_image_runs_where_only_its_data_may_be_written(folder: Path) -> None:
    image, port = ROOT / "Dockerfile", free_port()
    env = environment(image) | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder / "root"),
        "TMPDIR": str(folder / "tmp"),
        "RUNWIRE_ENV": "production",
        "RUNWIRE_PORT": str(port),
        "RUNWIRE_DATABASE_URL": f"sqlite:///{folder}/data/runwire.db",
        "RUNWIRE_API_KEYS_FILE": str(folder / "secrets" / "runwire_api_keys"),
        "RUNWIRE_SECRET_KEY_FILE": str(folder / "secrets" / "runwire_secret_key"),
    }
    subprocess.run(command("python", "-c", CANNOT_WRITE), cwd=folder / "root", env=env, check=True)
    healthy = [str(BIN / "python"), *exec_form(image, "HEALTHCHECK")[1:]]
    key = (folder / "secrets" / "runwire_api_keys").read_text().partition(":")[0]
    body = {"agent": {"model": {"provider": "scripted", "script": [{"content": "hi"}]}}, "input": "x"}
    with running(command(*exec_form(image, "ENTRYPOINT"), *exec_form(image, "CMD")), folder, env) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith(b"Runwire is at ")
        subprocess.run(healthy, env=env, check=True, timeout=TIMEOUT_S)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=TIMEOUT_S) as client:
            answer = client.post("/runs/wait", json=body, headers={"Authorization": f"Bearer {key}"})
            assert (answer.status_code, answer.json()["output"]) == (200, {"output": "hi"})
        server.send_signal(signal.SIGTERM)
        assert server.wait(TIMEOUT_S) == 0
    assert subprocess.run(healthy, env=env, check=False, capture_output=True, timeout=TIMEOUT_S).returncode != 0
    assert os.listdir(folder / "root") == []
    assert (folder / "data" / "runwire.db").is_file()


def test_the_tool_s_image_serves_with_its_secret_from_a_file(folder: Path) -> None:
    image, port = ROOT / "docker" / "tool_service" / "Dockerfile", free_port()
    env = environment(image) | {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "examples" / "tool_service"),
        "TOOL_PORT": str(port),
        "TOOL_SECRET_FILE": str(folder / "secrets" / "tool_secret"),
    }
    start = str(ROOT / "docker" / "tool_service" / Path(exec_form(image, "ENTRYPOINT")[-1]).name)
    signer = Webhook((folder / "secrets" / "tool_secret").read_text().strip())
    body = '{"data": {"tool_call_id": "1", "arguments": {"a": 2, "b": 3}}}'
    now = datetime.now(UTC)
    headers = {
        "webhook-id": "1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signer.sign("1", now, body),
    }
    with running(command("python", start), folder, env) as tool:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=TIMEOUT_S) as client:
            for line in iter(tool.stderr.readline, b"") if tool.stderr else ():
                if b"Uvicorn running" in line:
                    break
            assert client.post("/add", content=body).status_code == 401
            assert client.post("/add", content=body, headers=headers).json() == {"output": 5.0}
        tool.send_signal(signal.SIGTERM)
        tool.wait(TIMEOUT_S)
    assert os.listdir(folder / "root") == []
