"""Scripts of the repository as modules, for tests."""

import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def load_script(path):
    """Imports a script as its neighbours do, by its bare name from its own folder."""
    place = ROOT / path
    sys.path.insert(0, str(place.parent))
    try:
        return importlib.import_module(place.stem)
    finally:
        sys.path.remove(str(place.parent))
