"""Other people's verifiers. Their absence fails under CI=true, and is said aloud elsewhere, like the browser's."""

import importlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reviewer.installation import PROJECT

GO_MOD = Path("/usr/share/gocode/src/golang.org/x/mod/sumdb/tlog")


def independent(module: str) -> Any:
    """That module of somebody else's."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        return _missing(f"{module} is missing ({error}): `make setup` installs it.")


def find_go() -> str:
    """The Go compiler, where Debian's golang-golang-x-mod-dev is installed too."""
    go = shutil.which("go")
    if go is None or not GO_MOD.exists():
        return str(_missing("Go or golang.org/x/mod is missing: install golang-go and golang-golang-x-mod-dev."))
    return go


def find_foreign(module: str) -> str:
    """The interpreter that has that module of somebody else's: `make tools` makes it, with what does not suit ours."""
    python = PROJECT / ".venv" / ".foreign" / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", f"import {module}"], check=False).returncode != 0:
        return str(_missing(f"{module} is missing: `make tools` installs it."))
    return str(python)


def _missing(sentence: str) -> Any:
    return pytest.fail(sentence) if os.environ.get("CI") == "true" else pytest.skip(sentence)
