"""A set of names that does not grow for ever."""

from collections.abc import Collection, Iterator


class Latest(Collection[str]):
    """The latest names that were added, `most` of them; what was added longest ago goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: dict[str, None] = {}

    def add(self, name: str) -> None:
        self._names.pop(name, None)
        self._names[name] = None
        if len(self._names) > self._most:
            del self._names[next(iter(self._names))]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
