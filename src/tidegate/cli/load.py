"""Finding the query in a user's Python file."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tidegate.errors import QueryError, TidegateError, choices
from tidegate.stream import Stream

PREFERRED = "query"


def load_query(target: str) -> Stream:
    """The query that ``FILE`` or ``FILE:name`` stands for.

    Without a name it is the one called ``query``, or the only one the file makes.
    """
    path, name = _split(target)
    module = _execute(path)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Stream) and key[0] != "_"}
    if name is not None:
        if name in found:
            return found[name]
        raise QueryError(f"{path} has no query called '{name}'; it has {choices(found)}")
    if PREFERRED in found or len(found) == 1:
        return found.get(PREFERRED) or next(iter(found.values()))
    if not found:
        raise QueryError(f"{path} has no query: assign one to a variable, as in query = tg.stream(...)...")
    raise QueryError(
        f"{path} has several queries; name one, as in {path}:{next(iter(found))}. There are {choices(found)}"
    )


def _split(target: str) -> tuple[Path, str | None]:
    if Path(target).is_file():
        return Path(target), None
    file, colon, name = target.rpartition(":")
    path = Path(file if colon else target)
    if not path.is_file():
        raise QueryError(f"there is no file {str(path)!r}")
    return path, name if colon else None


def _execute(path: Path) -> ModuleType:
    """Run a file as a module of its own.

    It is forgotten as a module afterwards, so that its functions are shipped to Spark's workers whole, not by name;
    modules beside it are found by name, there and here.
    """
    folder = str(path.parent.absolute())
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    module = ModuleType(f"tidegate_query_{path.stem}")
    module.__file__ = str(path.absolute())
    sys.modules[module.__name__] = module
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except (TidegateError, SystemExit):
        raise
    except SyntaxError as error:
        raise QueryError(f"{path}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f"{path}, line {lines[-1]}" if lines else str(path)
        raise QueryError(f"{place}: {type(error).__name__}: {error}") from error
    finally:
        del sys.modules[module.__name__]
    return module
