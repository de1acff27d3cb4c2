"""The verbs of a board for programs without an event loop: Django, Flask, scripts.

    with blackboard.open_blocking("app.db", handlers=[feed]) as board:
        board.add("toronto", "feed", every="1h")

The board lives on a thread of its own with an event loop of its own, the portal. A call hands its
coroutine to that loop and waits for the answer, so any number of threads may share one board.

No verb is written twice. `BlockingBoard` has one line for each: `verb(Board.add)` is a method that
calls `Board.add` through the portal. `verb` is typed with a ParamSpec over the parameters behind
`self` and with the type that the coroutine returns: mypy and editors see the signature of
`Board.add`, and what is awaited there is returned here. `direct` does that for methods that are no
coroutines, `each` for asynchronous iterators, `made` for methods that make a worker or an election.
A test compares the verbs of both classes.

A board belongs to the process that opened it. A server that forks its workers opens it afterwards.
A board that is still open when the program ends is closed then, as at the end of its block.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar
from weakref import WeakSet

from blackboard.board import Board, open_board
from blackboard.board_worker import BoardWorker
from blackboard.errors import BlackboardError, BoardClosed, OfOneProcess
from blackboard.runners.loop import run_loop
from blackboard.runners.signals import BlockingSignal
from blackboard.worker.sigterm import Block, reset

if TYPE_CHECKING:
    from blackboard.sharing.election import Election

P = ParamSpec("P")
Answer = TypeVar("Answer")
Inner = TypeVar("Inner")
Element = TypeVar("Element")
Made = TypeVar("Made")
Manager = TypeVar("Manager", bound=AbstractAsyncContextManager[Any])

OWN_THREAD = (
    "a verb cannot wait on the board's own thread, where `async def` handlers and subscribers are "
    "called: call it on another thread"
)
END_WITHIN = 10.0
"""Seconds for which a program that ends waits until its board is closed."""
FORKED = "this board was opened before this process was forked: open it in this process"


class Portal:
    """A thread that runs an event loop, and calls coroutines on it for other threads."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._lock = threading.RLock()  # a signal, or the garbage collector, may enter it again
        self._is_closed = False
        self._has_ended = False
        self._waiting: WeakSet[Future[Any]] = WeakSet()
        """The results that other threads wait for."""
        self._held: list[Callable[[float | None], None]] = []
        """Leaves what was entered here, in the order of entering."""
        self._thread = threading.Thread(target=self._run, name="blackboard", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._thread.start()
            atexit.register(self._end)
            self._started.result()
        except BaseException:  # Ctrl-C, also while it starts, or there can be no thread
            if self._started.cancel():  # the thread, if it has begun, ends by itself
                atexit.unregister(self._end)
            else:
                self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close(None)

    def _close(self, within: float | None) -> None:
        if not self._has_thread:
            return
        atexit.unregister(self._end)
        if self._started.exception() is None:
            loop, closed = self._started.result()
            with self._lock:  # earlier calls are on the loop by now, and have their answers
                self._is_closed = True
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(closed.set)
            self._thread.join(within)

    def _end(self) -> None:
        """Leaves all that was entered here, at the end of the program: first the board, which ends
        its workers without grace. Ctrl-C ends the wait for that, and SIGTERM the program.
        """
        reset()
        try:
            with suppress(KeyboardInterrupt, TimeoutError):
                for leave in tuple(self._held):
                    leave(END_WITHIN)
                self._close(END_WITHIN)
        finally:
            self._has_ended = True

    @property
    def _has_thread(self) -> bool:
        """Whether its thread may run: not in a forked process, nor when the garbage collector
        leaves its blocks at the end of the program.
        """
        return not self._has_ended and os.getpid() == self._pid

    def call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """What a coroutine returns or raises. An interruption of the wait, such as Ctrl-C, cancels
        the coroutine. Raises BlackboardError where the wait would never end.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise BlackboardError(OWN_THREAD)
        future = self._begin(work)
        try:
            return future.result()
        except CancelledError:
            if not self._is_closed:
                raise
            raise BoardClosed from None
        except BaseException:
            future.cancel()
            raise

    @contextmanager
    def hold(self, manager: AbstractAsyncContextManager[Answer]) -> Iterator[Answer]:
        """Enters an asynchronous context manager, and leaves it at the end, both in one task. What
        it raises meanwhile is raised at the end.
        """
        entered: Future[Answer] = Future()
        leaving = asyncio.Event()

        async def held() -> None:
            async with manager as value:
                entered.set_result(value)
                await leaving.wait()

        def ended(future: Future[None]) -> None:
            if not entered.done():
                problem = None if future.cancelled() else future.exception()
                closed = BoardClosed() if self._is_closed else CancelledError()
                entered.set_exception(problem or closed)

        future = self._begin(held())
        future.add_done_callback(ended)
        leave = partial(self._leave, leaving, entered, future)
        self._held.append(leave)
        try:
            yield entered.result()
        finally:
            if self._has_thread:  # else its task has to stay: no loop could end it
                self._held.remove(leave)
            leave(None)

    def _leave(
        self,
        leaving: asyncio.Event,
        entered: "Future[Any]",
        future: "Future[None]",
        within: float | None,
    ) -> None:
        if not self._has_thread:
            return
        with suppress(RuntimeError):  # the loop is closed
            self._started.result()[0].call_soon_threadsafe(leaving.set)
        try:
            if entered.done() and entered.exception() is None:
                future.result(within)
        except CancelledError:
            if not self._is_closed:  # else the board was closed meanwhile, and this with it
                raise
        finally:
            future.cancel()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine that needs no answer, unless the board is closed. Never waits: the loop
        itself may call this, and the garbage collector on any thread.
        """
        with suppress(BlackboardError):
            self._begin(work)

    def _begin(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        if os.getpid() != self._pid:  # the lock may be held in a copy of another thread
            work.close()
            raise BlackboardError(FORKED)
        with self._lock:
            if not self._is_closed:
                future = asyncio.run_coroutine_threadsafe(work, self._started.result()[0])
                self._waiting.add(future)
                return future
        work.close()
        raise BoardClosed

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):  # all tasks of the loop were cancelled
                run_loop(self._until_closed())
        except BaseException as problem:
            if self._started.done():
                raise
            self._started.set_exception(problem)  # no loop could be made
        finally:
            with self._lock:
                self._is_closed = True
            for future in tuple(self._waiting):
                with suppress(InvalidStateError):  # it is done
                    future.set_exception(BoardClosed())

    async def _until_closed(self) -> None:
        closed = asyncio.Event()
        if self._started.set_running_or_notify_cancel():
            self._started.set_result((asyncio.get_running_loop(), closed))
            await closed.wait()


async def _closed(elements: AsyncGenerator[Any]) -> None:
    await elements.aclose()


class Proxy(OfOneProcess, Generic[Inner]):
    """An object whose methods are called through a portal."""

    def __init__(self, inner: Inner, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal


def verb(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, Answer]],
) -> Callable[Concatenate[Proxy[Inner], P], Answer]:
    """A method that waits, from a coroutine method."""

    @wraps(method)
    def call(self: Proxy[Inner], /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        return self._portal.call(method(self._inner, *args, **kwargs))

    return call


def in_block(
    method: Callable[Concatenate[Proxy[Inner], P], Answer],
) -> Callable[Concatenate[Proxy[Inner], P], Answer]:
    """The same method. SIGTERM ends the wait of the main thread for it, where the program does not
    handle that.
    """

    @wraps(method)
    def call(self: Proxy[Inner], /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        with Block():
            return method(self, *args, **kwargs)

    return call


def direct(
    method: Callable[Concatenate[Inner, P], Answer],
) -> Callable[Concatenate[Proxy[Inner], P], Answer]:
    """A method that waits until a plain method was called on the loop."""

    @wraps(method)
    def call(self: Proxy[Inner], /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        async def called() -> Answer:
            return method(self._inner, *args, **kwargs)

        return self._portal.call(called())

    return call


def each(
    method: Callable[Concatenate[Inner, P], AsyncGenerator[Element]],
) -> Callable[Concatenate[Proxy[Inner], P], Generator[Element]]:
    """A method that returns a generator, from an asynchronous one."""

    def elements(self: Proxy[Inner], iterator: AsyncGenerator[Element]) -> Generator[Element]:
        async def following() -> tuple[Element, ...]:
            async for element in iterator:
                return (element,)
            return ()

        try:
            while got := self._portal.call(following()):
                yield got[0]
        finally:
            self._portal.begin(_closed(iterator))

    @wraps(method)
    def call(self: Proxy[Inner], /, *args: P.args, **kwargs: P.kwargs) -> Generator[Element]:
        return elements(self, method(self._inner, *args, **kwargs))

    return call


def made(
    method: Callable[Concatenate[Inner, P], Answer], proxy: Callable[[Answer, Portal], Made]
) -> Callable[Concatenate[Proxy[Inner], P], Made]:
    """A method that returns a proxy, from a plain method that makes the object behind it."""
    make = direct(method)

    @wraps(method)
    def call(self: Proxy[Inner], /, *args: P.args, **kwargs: P.kwargs) -> Made:
        return proxy(make(self, *args, **kwargs), self._portal)

    return call


def _on_loop(end: Callable[[], None], portal: Portal) -> Callable[[], None]:
    async def ended() -> None:
        end()

    return lambda: portal.begin(ended())


class ManagerProxy(Proxy[Manager]):
    """A proxy of an asynchronous context manager: entered and left on the portal's loop. At SIGTERM
    the main thread, if it is in the block, leaves it, where the program does not handle that.
    """

    def __init__(self, inner: Manager, portal: Portal) -> None:
        super().__init__(inner, portal)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # A stack of its own: where a second `with` is refused, the first stays entered.
        with ExitStack() as entering:
            entering.enter_context(Block())
            entering.enter_context(self._portal.hold(self._inner))
            self._stack = entering.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, problem, traceback)


class BlockingWorker(ManagerProxy[BoardWorker]):
    """A worker on the portal's loop: `with board.worker(slots=8):`, else as `BoardWorker` says.
    When it fails, its error is raised at the end of the block.
    """

    def __init__(self, worker: BoardWorker, portal: Portal) -> None:
        super().__init__(worker, portal)
        self.name = worker.name

    work = in_block(verb(BoardWorker.work))
    stop = direct(BoardWorker.stop)


class BlockingElection(ManagerProxy["Election"]):
    """A candidate whose checks run on the portal's loop: `with board.election("report") as
    leader:`, else as `Election` says.
    """

    def __init__(self, election: "Election", portal: Portal) -> None:
        super().__init__(election, portal)
        self.name = election.name
        self.kind = election.kind
        self.lease = election.lease
        self.owner = election.owner

    @property
    def is_leader(self) -> bool:
        """Whether it holds the lock and is before its deadline."""
        return self._inner.is_leader

    def won(self, timeout: float | None = None) -> "BlockingTerm":
        """Waits until it is the leader. Returns the term in which it leads. Raises TimeoutError
        where it does not lead within `timeout` seconds.
        """
        term = self._portal.call(self._inner.won(timeout))
        return BlockingTerm(term.fence, BlockingTermLost(term.lost, self._portal.call))


class BlockingTermLost(OfOneProcess, BlockingSignal):
    """`term.lost`, as `TermLost` says."""


class BlockingTerm(NamedTuple):
    """A term of a leader, as `Term` says."""

    fence: int
    lost: BlockingTermLost


class ItemVerbs(Proxy[Board]):
    """The verbs of a board but those that make something, as methods that wait."""

    item = verb(Board.item)
    items = each(Board.items)
    runs = each(Board.runs)
    next = verb(Board.next)
    why = verb(Board.why)
    workers = verb(Board.workers)
    actions = verb(Board.actions)
    add = verb(Board.add)
    add_many = verb(Board.add_many)
    edit = verb(Board.edit)
    run = verb(Board.run)
    rename = verb(Board.rename)
    pause = verb(Board.pause)
    resume = verb(Board.resume)
    cancel = verb(Board.cancel)
    unlock = verb(Board.unlock)
    ack = verb(Board.ack)
    remove = verb(Board.remove)


class BlockingBoard(ItemVerbs):
    """A board that is open, with methods that wait. Made by `blackboard.open_blocking`; any thread
    may use it.
    """

    def __init__(self, board: Board, portal: Portal) -> None:
        super().__init__(board, portal)
        self.store = board.store
        self.name = board.name

    worker = made(Board.worker, BlockingWorker)
    election = made(Board.election, BlockingElection)
    subscribe = made(Board.subscribe, _on_loop)


@contextmanager
def open_blocking(
    store: str | os.PathLike[str] | None = None,
    *,
    handlers: Iterable[str | os.PathLike[str] | Callable[..., Any]] = (),
    settings: str | os.PathLike[str] | None = None,
    name: str | None = None,
    create: bool = False,
    shards: int = 1,
) -> Iterator[BlockingBoard]:
    """Open a board: `with blackboard.open_blocking("app.db") as board`. As `blackboard.open`."""
    manager = open_board(
        store, handlers=handlers, settings=settings, name=name, create=create, shards=shards
    )
    with Portal() as portal, portal.hold(manager) as board:
        yield BlockingBoard(board, portal)
