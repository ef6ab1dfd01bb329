"""The compose files: what they mount, name and allow, and that every service is hardened. No docker is needed."""

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from app.settings import Settings, load, variable_of
from app.storage.open import open_database

ROOT = Path(__file__).resolve().parents[2]
BASE, POSTGRES = ROOT / "docker-compose.yml", ROOT / "docker" / "postgres.yml"

SERVICE_KEYS = {
    "build", "cap_drop", "depends_on", "deploy", "environment", "healthcheck", "image", "logging", "ports", "profiles",
    "read_only", "restart", "secrets", "security_opt", "shm_size", "stop_grace_period", "tmpfs", "ulimits", "user", "volumes",
}  # fmt: skip
"""Of the compose specification, those we use: a misspelt one would be refused, or worse, ignored."""

Part = Mapping[str, Any]


def read(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", yaml.safe_load(path.read_text(encoding="utf-8")))


def services() -> dict[str, Part]:
    return cast("dict[str, Part]", read(BASE)["services"])


every_service = pytest.mark.parametrize("name", sorted(services()))


def test_the_files_hold_what_compose_knows() -> None:
    assert {key for key in read(BASE) if not key.startswith("x-")} == {"services", "secrets", "volumes"}
    assert read(POSTGRES).keys() == {"services", "secrets"}
    for path in (BASE, POSTGRES):
        for name, service in cast("dict[str, Part]", read(path)["services"]).items():
            assert service.keys() - SERVICE_KEYS == set(), name
            assert name in services()


def test_the_server_and_the_tool_start_by_default_and_postgres_on_demand() -> None:
    assert services().keys() == {"runwire", "tool", "postgres"}
    assert [name for name, service in services().items() if "profiles" in service] == ["postgres"]


@every_service
def test_a_service_is_hardened(name: str) -> None:
    service = services()[name]
    user, _, group = str(service["user"]).partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert any(str(mount).startswith("/tmp:") for mount in service["tmpfs"])
    assert "privileged" not in service
    limits = cast("Part", service["deploy"]["resources"]["limits"])
    assert limits.keys() == {"cpus", "memory", "pids"}
    assert service["restart"] == "unless-stopped"
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}


@every_service
def test_a_service_is_built_from_a_file_that_is_there_or_pinned_by_a_tag(name: str) -> None:
    service = services()[name]
    if "image" in service:
        _, _, tag = str(service["image"]).partition(":")
        assert tag
        assert tag != "latest"
        return
    build = service["build"]
    folder, file = (build, "Dockerfile") if isinstance(build, str) else (build["context"], build["dockerfile"])
    dockerfile = ROOT / str(folder) / str(file)
    assert f"USER {service['user']}" in dockerfile.read_text(encoding="utf-8").splitlines()


def test_only_the_server_is_reachable_and_only_from_this_machine() -> None:
    ports = {name: service.get("ports", []) for name, service in services().items()}
    assert ports == {"runwire": ["127.0.0.1:8080:8080"], "tool": [], "postgres": []}
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "RUNWIRE_PORT=8080" in dockerfile
    assert services()["runwire"]["environment"]["RUNWIRE_EGRESS_ALLOW"] == "tool:9000"
    assert "EXPOSE 9000" in (ROOT / "docker" / "tool_service" / "Dockerfile").read_text(encoding="utf-8")


def test_volumes_are_declared_and_hold_what_the_images_write() -> None:
    mounted = {
        name: [str(volume).split(":") for volume in item.get("volumes", [])] for name, item in services().items()
    }
    assert mounted["runwire"] == [["runwire-data", "/data"]]
    declared = cast("Part", read(BASE)["volumes"])
    assert declared.keys() == {volume for volumes in mounted.values() for volume, _ in volumes}


def test_every_variable_of_the_server_is_a_setting() -> None:
    known = {variable_of(name) for name in Settings.model_fields}
    known |= {f"{name}_FILE" for name in known}
    for path in (BASE, POSTGRES):
        assert cast("Part", read(path)["services"]["runwire"]["environment"]).keys() - known == set()


def test_a_service_has_longer_to_stop_than_the_server_takes() -> None:
    service = services()["runwire"]
    grace_s = float(service["environment"]["RUNWIRE_SHUTDOWN_GRACE_S"])
    assert float(str(service["stop_grace_period"]).removesuffix("s")) >= grace_s + 5


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the script made, of a copy."""
    folder = tmp_path_factory.mktemp("docker")
    script = folder / "make_secrets.sh"
    script.write_bytes((ROOT / "docker" / "make_secrets.sh").read_bytes())
    done = subprocess.run(["sh", str(script)], capture_output=True, text=True, check=True)
    made = folder / "secrets"
    key = (made / "runwire_api_keys").read_text().partition(":")[0]
    assert key in done.stdout
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    subprocess.run(["sh", str(script)], capture_output=True, check=True)
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before
    return made


def declared_secrets() -> dict[str, str]:
    """Name → the file it is."""
    parts = cast("dict[str, dict[str, str]]", {**read(BASE)["secrets"], **read(POSTGRES)["secrets"]})
    return {name: part["file"] for name, part in parts.items()}


def test_every_secret_is_a_file_that_the_script_makes(secrets: Path) -> None:
    assert {f"docker/secrets/{path.name}" for path in secrets.iterdir()} == set(declared_secrets().values())
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o044 == 0o044 and path.stat().st_size > 16 for path in secrets.iterdir())


def test_secrets_come_from_files_alone_and_are_mounted_where_they_are_read() -> None:
    for path in (BASE, POSTGRES):
        for name, service in cast("dict[str, Part]", read(path)["services"]).items():
            environment = cast("Mapping[str, str]", service.get("environment", {}))
            files = {value for variable, value in environment.items() if variable.endswith("_FILE")}
            assert files == {f"/run/secrets/{secret}" for secret in service.get("secrets", [])}, name
            for variable, value in environment.items():
                if any(word in variable for word in ("KEY", "SECRET", "PASSWORD")) and not variable.endswith("_FILE"):
                    assert value == f"${{{variable}:-}}", variable  # of the shell, or none


def test_secrets_are_neither_committed_nor_copied_into_an_image() -> None:
    assert "docker/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored.index("docker/secrets") > ignored.index("!docker")


@pytest.mark.parametrize("files", [(BASE,), (BASE, POSTGRES)], ids=["sqlite", "postgres"])
def test_the_server_takes_the_settings_that_it_is_given(files: tuple[Path, ...], secrets: Path) -> None:
    environment: dict[str, str] = {"RUNWIRE_HOST": "0.0.0.0"}
    for path in files:
        environment |= cast("dict[str, str]", read(path)["services"]["runwire"]["environment"])
    for name, value in environment.items():
        value = value.replace("/run/secrets", str(secrets))
        environment[name] = "" if value.startswith("${") else value
    settings = load(environment)
    assert settings.env == "production"
    assert settings.database_url.startswith("postgresql://" if POSTGRES in files else "sqlite:")
    open_database(settings.database_url)


def test_the_commands_in_the_comments_name_files_that_are_there() -> None:
    for line in BASE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#   docker"):
            continue
        words = shlex.split(line[1:], comments=True)
        for word in words:
            if word.endswith((".yml", ".sh")):
                assert (ROOT / word).is_file()
    assert (ROOT / "docker" / "make_secrets.sh").stat().st_mode & 0o111
