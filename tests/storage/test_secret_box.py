"""Sealing secrets."""

import stat
from pathlib import Path

import pytest

from app.core.errors import InvalidRequest, Unavailable
from app.storage.secret_box import SecretBox, key_file

KEY = "sixteen characters or more"


def test_a_sealed_secret_opens_and_is_never_the_same_twice() -> None:
    box = SecretBox(KEY)
    one, two = box.seal("t", "1", "pä"), box.seal("t", "1", "pä")
    assert one != two
    assert "pä".encode() not in one
    assert SecretBox(KEY).open("t", "1", one) == box.open("t", "1", two) == "pä"


@pytest.mark.parametrize(("tenant", "secret_id"), [("u", "1"), ("t", "2"), ("t1", ""), ("", "t1")])
def test_a_ciphertext_moved_to_another_row_does_not_open(tenant: str, secret_id: str) -> None:
    box = SecretBox(KEY)
    with pytest.raises(Unavailable) as failure:
        box.open(tenant, secret_id, box.seal("t", "1", "x"))
    assert failure.value.code == "secret_unreadable"


def test_a_changed_or_cut_ciphertext_does_not_open() -> None:
    box = SecretBox(KEY)
    sealed = box.seal("t", "1", "x")
    for broken in (sealed[:-1] + bytes([sealed[-1] ^ 1]), sealed[:14], b""):
        with pytest.raises(Unavailable):
            box.open("t", "1", broken)


def test_a_short_key_is_refused_without_being_repeated() -> None:
    with pytest.raises(InvalidRequest) as failure:
        SecretBox("short")
    assert "short" not in failure.value.message


def test_a_key_file_is_made_once_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    key = key_file(path)
    assert len(key) == 64
    assert key_file(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["key"]
