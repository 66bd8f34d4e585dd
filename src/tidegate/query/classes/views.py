"""The dicts of a user's class as its method sees them: for one key, over the key's state and stores.

The analysis has shown that a dict is indexed by the key of the tuple alone, so a view has one entry, or none, and does not
look at the index. A dict or set inside is a store; it comes in the canonical order of its keys.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSet
from typing import Any

from tidegate.query.classes.attributes import Factory
from tidegate.query.stores import Store

_ABSENT: Any = object()


class StoredMap(MutableMapping[Any, Any]):
    """A store as a dict."""

    __slots__ = ("store",)

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getitem__(self, key: Any) -> Any:
        if not self.store.has(key):
            raise KeyError(key)
        return self.store.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.store.put(key, value)

    def __delitem__(self, key: Any) -> None:
        if not self.store.remove(key):
            raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.store)

    def __len__(self) -> int:
        return len(self.store)

    def __ior__(self, other: Any) -> StoredMap:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return repr(dict(self))


class StoredSet(MutableSet[Any]):
    """A store as a set."""

    __slots__ = ("store",)

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def _from_iterable(cls, it: Any) -> Any:
        return set(it)

    def __contains__(self, key: object) -> bool:
        return self.store.has(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.store)

    def __len__(self) -> int:
        return len(self.store)

    def add(self, value: Any) -> None:
        self.store.put(value)

    def discard(self, value: Any) -> None:
        self.store.remove(value)

    def __repr__(self) -> str:
        return repr(set(self))


class DictView:
    """A dict that holds a value or a list for each key: the entry of one of them, None in the state if it has none."""

    __slots__ = ("factory", "value")

    def __init__(self, kept: Any, factory: Factory | None, is_list: bool = False) -> None:
        self.value: Any = _ABSENT if kept is None else list(kept) if is_list else kept
        self.factory = factory

    def kept(self) -> Any:
        """What the state holds after the call."""
        return None if self.value is _ABSENT else self.value

    def __contains__(self, key: object) -> bool:
        return self.value is not _ABSENT

    def __getitem__(self, key: Any) -> Any:
        if self.value is _ABSENT:
            if self.factory is None:
                raise KeyError(key)
            self[key] = self.factory()
        return self.value

    def __setitem__(self, key: Any, value: Any) -> None:
        if value is None:
            raise TypeError("a dict of an operator holds no None: it stands for a key without entry; delete the entry")
        self.value = value

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def get(self, key: Any, default: Any = None) -> Any:
        return default if self.value is _ABSENT else self.value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if self.value is _ABSENT:
            self[key] = default
        return self.value

    def pop(self, key: Any, default: Any = _ABSENT) -> Any:
        found, self.value = self.value, _ABSENT
        if found is not _ABSENT:
            return found
        if default is _ABSENT:
            raise KeyError(key)
        return default


class StoreView(DictView):
    """A dict that holds a dict or a set for each key: that of one of them is a store; the state says whether it is there."""

    __slots__ = ("inside", "store")

    def __init__(self, kept: Any, factory: Factory | None, store: Store, is_set: bool) -> None:
        self.store = store
        self.inside = StoredSet if is_set else StoredMap
        super().__init__(self.inside(store) if kept else None, factory)

    def kept(self) -> Any:
        return None if self.value is _ABSENT else True

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, StoredMap | StoredSet) and value.store is self.store:
            return
        if not isinstance(value, set if self.inside is StoredSet else dict):
            raise TypeError(f"{value!r} is no {'set' if self.inside is StoredSet else 'dict'}, which was declared")
        entries = list(value.items()) if isinstance(value, dict) else [(one, None) for one in value]
        self._detach()
        for one, held in entries:
            self.store.put(one, held)
        self.value = self.inside(self.store)

    def pop(self, key: Any, default: Any = _ABSENT) -> Any:
        self._detach()
        return super().pop(key, default)

    def _detach(self) -> None:
        """Let what was handed out before stay as it is, and begin with an empty store."""
        if self.value is not _ABSENT:
            copy = Store(self.store.name, self.store.of, self.store.owner)
            for one, held in self.store.items():
                copy.put(one, held)
            self.value.store = copy
        self.store.clear()
