"""The build's one step of its own: in the wheel, the server is inside the package `runwire`.

    repository            wheel
    runwire.py            runwire/__init__.py
    app/__main__.py       runwire/__main__.py
    app/…                 runwire/_server/…

Imports of `app` are rewritten on the way, nothing else is; docs/adr/0008 says why. All the rest of the build is in
pyproject.toml. An editable install takes the repository as it is.
"""

import ast
import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

PUBLIC = "runwire"
SOURCE = "app"
SERVER = f"{PUBLIC}._server"


def with_imports_of_the_wheel(text: str, name: str) -> str:
    """`text` with the imports of `app` turned to the server's place in the wheel, line for line.

    Raises `SyntaxError` for an import that this cannot turn: `import app.x` binds the name `app`.
    """
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text, name)):
        if isinstance(node, ast.ImportFrom):
            wanted = node.level == 0 and _is_ours(node.module or "")
        elif isinstance(node, ast.Import):
            wanted = any(_is_ours(alias.name) for alias in node.names)
        else:
            continue
        if wanted:
            at = node.lineno - 1
            lines[at] = _turned(lines[at], node, name)
    return "\n".join(lines)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == SOURCE


def _turned(line: str, node: "ast.Import | ast.ImportFrom", name: str) -> str:
    before, statement = line.encode()[: node.col_offset].decode(), line.encode()[node.col_offset :].decode()
    if isinstance(node, ast.ImportFrom):
        turned, found = re.subn(rf"^(from +){SOURCE}(?=[. ])", rf"\1{SERVER}", statement)
    elif len(node.names) == 1 and node.names[0].asname is not None:
        turned, found = re.subn(rf"^(import +){SOURCE}(?=[. ])", rf"\1{SERVER}", statement)
    else:
        turned, found = statement, 0
    if not found:
        raise SyntaxError(f"{name}:{node.lineno}: write this as `from {SOURCE}… import …`, or the build cannot turn it")
    return before + turned


class BuildPy(build_py):
    """Builds the repository's modules, then gives them their places in the wheel."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        built = Path(self.build_lib)
        for left in (PUBLIC, SOURCE):  # an earlier build's: all that lies there gets into the wheel
            shutil.rmtree(built / left, ignore_errors=True)
        super().run()
        for path in (built / f"{PUBLIC}.py", *(built / SOURCE).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            path.write_text(with_imports_of_the_wheel(text, str(path.relative_to(built))), encoding="utf-8")
        package = built / PUBLIC
        package.mkdir()
        (built / f"{PUBLIC}.py").rename(package / "__init__.py")
        (built / SOURCE).rename(package / SERVER.rpartition(".")[2])
        (package / "_server" / "__main__.py").rename(package / "__main__.py")
        (package / "py.typed").touch()


class EggInfo(egg_info):
    """Tells `runwire` as the only name that the distribution takes."""

    def run(self) -> None:
        super().run()
        (Path(self.egg_info) / "top_level.txt").write_text(f"{PUBLIC}\n", encoding="utf-8")


if __name__ == "__main__":  # so is it run by the build; tests import it
    setup(cmdclass={"build_py": BuildPy, "egg_info": EggInfo})
