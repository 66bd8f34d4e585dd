"""A storage in memory, for state that is written thousands of times; notes what is put and what is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.state.chunks import Data


@dataclass(slots=True)
class MemoryStorage:
    """Files by name, as `tidegate.state.storage.Storage` has them; ``puts`` and ``gets`` are in the order of time."""

    uri: str = "memory"
    is_local: bool = True
    files: dict[str, bytes] = field(default_factory=dict)
    puts: list[str] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)

    def put(self, name: str, data: Data) -> None:
        self.puts.append(name)
        self.files[name] = bytes(data)

    def get(self, name: str) -> bytes | None:
        self.gets.append(name)
        return self.files.get(name)

    def names(self, folder: str) -> list[str]:
        return sorted(rest for rest in self._below(folder) if "/" not in rest)

    def folders(self, folder: str) -> list[str]:
        return sorted({rest.partition("/")[0] for rest in self._below(folder) if "/" in rest})

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.files.pop(name, None)

    def _below(self, folder: str) -> list[str]:
        return [name.removeprefix(f"{folder}/") for name in self.files if name.startswith(f"{folder}/")]
