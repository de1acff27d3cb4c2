"""How a measurement is taken and printed: a name, what was measured, what it is compared with."""

import gc
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`value` and `beside` are of one unit."""

    name: str
    value: float
    unit: str
    beside: float
    reference: str
    """What ran beside it."""

    @property
    def ratio(self) -> float:
        return self.value / self.beside

    def line(self) -> str:
        values = f"{self.value:>10,.5g} {self.unit:<7} {self.beside:>10,.5g}"
        return f"{self.name:<34} {values}  {self.reference:<34} ratio {self.ratio:.3g}"


def best_of(times: int, work: Callable[[], float]) -> float:
    """The smallest of several results in seconds: what else the machine did only adds to them."""
    return min(work() for _ in range(times))


def seconds(work: Callable[[], object]) -> float:
    """How long it takes, with no garbage of others in between."""
    gc.collect()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def tell(found: Iterable[Measured]) -> None:
    """Prints lines, or one JSON list with --json. A line is printed as soon as it is there."""
    if "--json" in sys.argv[1:]:
        told = [{**asdict(one), "ratio": one.ratio} for one in found]
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
        return
    for one in found:
        sys.stdout.write(one.line() + "\n")
        sys.stdout.flush()
