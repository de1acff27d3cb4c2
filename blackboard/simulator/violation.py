"""What an oracle raises."""


class Violation(AssertionError):
    """An invariant does not hold. `kind` is the oracle's word for it, the same however it comes
    about; `item` is what it is about.
    """

    def __init__(self, kind: str, what: str, *, item: str = "") -> None:
        super().__init__(f"{kind}: {what}" + (f" ({item})" if item else ""))
        self.kind = kind
        self.what = what
        self.item = item
