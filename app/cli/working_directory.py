"""The working directory as a place of modules: plugins beside the user are found whatever started the command."""

import os
import sys


def look_there_for_modules() -> None:
    """As `python -m` does; a console command begins with its own folder instead. Not where Python runs in its safe mode."""
    here = os.getcwd()
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
