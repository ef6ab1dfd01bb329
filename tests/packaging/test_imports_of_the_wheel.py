"""Imports turned for the wheel: every form that binds the same names, and nothing else of a text."""

import pytest

from setup import with_imports_of_the_wheel


@pytest.mark.parametrize(
    ("written", "built"),
    [
        ("from app import __version__", "from runwire._server import __version__"),
        ("from app.core.ids import new_id as make", "from runwire._server.core.ids import new_id as make"),
        (
            "from  app.core import (\n    ids,\n    errors,\n)",
            "from  runwire._server.core import (\n    ids,\n    errors,\n)",
        ),
        ("def f():\n    from app.a import b", "def f():\n    from runwire._server.a import b"),
        ("x = 'é'; from app import a", "x = 'é'; from runwire._server import a"),
        ("x = '\u2028\x0c'\nfrom app import a", "x = '\u2028\x0c'\nfrom runwire._server import a"),
        ("import app.core as core", "import runwire._server.core as core"),
        ("from apples import app", "from apples import app"),
        ("from .app import app", "from .app import app"),
        ("import apples, os", "import apples, os"),
        ('"""from app import x"""\napp.run("app.main")', '"""from app import x"""\napp.run("app.main")'),
    ],
)
def test_an_import_of_app_is_turned_and_nothing_else(written: str, built: str) -> None:
    assert with_imports_of_the_wheel(written, "x.py") == built


@pytest.mark.parametrize(
    "written", ["import app", "import app.core", "import os, app.core as core", "from \\\n app import a"]
)
def test_an_import_that_cannot_be_turned_fails_the_build(written: str) -> None:
    with pytest.raises(SyntaxError, match=r"x\.py:1"):
        with_imports_of_the_wheel(written, "x.py")
