"""Long calls of the main thread, which signals such as Ctrl-C stop."""
from __future__ import annotations

import _thread
import contextlib
import queue
import threading
from typing import Any, Callable

from ._abi import Status

_here = threading.local()  # errand: the one that this thread makes


def caller() -> int:
    """The thread whose call this thread makes, by default itself."""
    return _here.errand.caller if hasattr(_here, "errand") else threading.get_ident()


def answered(function: Callable[..., Any], arguments: Any) -> Any:
    """What a callback gives; that of an errand runs on the thread that waits for it, as those of any call do."""
    return _here.errand.ask(function, arguments) if hasattr(_here, "errand") else function(*arguments)


class _Question:
    def __init__(self, function: Callable[..., Any], arguments: Any) -> None:
        self.function, self.arguments = function, arguments
        self.answer: queue.SimpleQueue[Any] = queue.SimpleQueue()


class Errand:
    """A call that another thread makes, so that the main thread can act on signals meanwhile.

    Python runs signal handlers on the main thread alone, and not before a C function has come back. What a handler
    raises at the first step of a callback would be lost. Therefore the main thread waits here and answers the
    callbacks. What a handler raises cancels the call, and is raised when the call has ended.
    """

    def __init__(self, function: Callable[[], Any], cancel: Callable[[], None]) -> None:
        self.caller = threading.get_ident()
        self._function, self._cancel = function, cancel
        self._taken: dict[str, object] = {}  # "by": the one that makes the call; self: no thread
        self._done, self._result = False, None
        self._error: BaseException | None = None
        self._asked: _Question | None = None
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()  # a hint: _done and _asked are what counts

    def run(self) -> Any:
        """The result of the function. Each step may be interrupted by a signal, and may be done twice."""
        stopped: BaseException | None = None
        settled: _Question | None = None
        started = cancelled = False
        while not self._done:
            try:
                if stopped is not None and self._take(self):
                    break
                if not started:
                    started = self._start()
                    if not started and self._take(self):
                        return self._function()
                if stopped is not None and not cancelled:
                    self._cancel()
                    cancelled = True
                asked = self._asked
                if asked is settled:
                    with contextlib.suppress(queue.Empty):
                        self._news.get(timeout=0.1)  # _thread.interrupt_main() does not end the wait
                elif asked is not None:
                    asked.answer.put(Status.CALLBACK if stopped else asked.function(*asked.arguments))
                    settled = asked
            except BaseException as error:
                stopped = error
        if stopped is not None:
            raise stopped
        if self._error is not None:
            raise self._error
        return self._result

    def _start(self) -> bool:
        try:
            _thread.start_new_thread(self._make, ())
        except RuntimeError:  # there are no threads left
            return False
        return True

    def _take(self, by: object) -> bool:
        return self._taken.setdefault("by", by) is by

    def _make(self) -> None:
        if not self._take(object()):
            return
        _here.errand = self
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error
        finally:
            del _here.errand
            self._done = True
            self._news.put(None)

    def ask(self, function: Callable[..., Any], arguments: Any) -> Any:
        question = _Question(function, arguments)
        self._asked = question
        self._news.put(None)
        return question.answer.get()
