"""Owned objects of the library, and the calls that use them."""
import ctypes
import json
import os
import threading
import weakref

from ._library import failure, lib

_INVALID_HANDLE, _BUSY = 3, 18


class Handle:
    """One owned object of the library; `close` ends it, else the collector does.

    close() waits for the calls that use the object in other threads; a later call with it is
    InvalidHandle, a second close() does nothing. A signal handler that closes what its own thread
    is using gets Busy. There are no copies: two owners would end one object twice.
    """
    _kind = None  # "layer"
    _end = None

    def __new__(cls, *_, **__):
        self = super().__new__(cls)
        self._closed = True
        self._calls = {}  # those that use it: a lock, taken until the call has ended -> who makes the call
        return self

    def __init__(self, pointer):
        self._pointer = pointer
        self._end = weakref.finalize(self, getattr(lib, f"moe_{self._kind}_destroy"), pointer)  # runs once
        self._end.atexit = False  # a daemon thread may still be in a call
        self._closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: it owns an object of libmoe; "
                        "threads may share it, other processes make their own")

    def _enter(self, running, who):
        self._calls[running] = who  # before _closed is read, as close() sets _closed before it reads _calls
        if self._closed:
            raise failure(_INVALID_HANDLE, self._kind, f"this {self._kind} is closed", {})
        return self._pointer

    def close(self):
        me = _who()
        if me in self._calls.copy().values():
            raise failure(_BUSY, self._kind, f"this {self._kind} is in use by the thread that closes it", {})
        self._closed = True
        for running, (process, _) in self._calls.copy().items():
            if process == me[0]:  # fork() leaves behind the calls of threads that the child does not have
                with running:
                    pass
        if self._end:
            self._end()


def _who():
    return os.getpid(), threading.get_ident()


def invoke(name, *arguments):
    """Calls a function of the library; the handles among its arguments stay open meanwhile."""
    handles = [a for a in arguments if isinstance(a, Handle)]
    running, who = threading.Lock(), _who()
    with running:
        try:
            raw = [a._enter(running, who) if isinstance(a, Handle) else a for a in arguments]
            return getattr(lib, name)(*raw)
        finally:
            for handle in handles:
                handle._calls.pop(running, None)


def call(name, *arguments):
    """Calls a fallible function and raises what it reports."""
    err = ctypes.c_void_p()
    status = invoke(name, *arguments, ctypes.byref(err))
    if status:
        try:
            raise failure(status, lib.moe_error_subject(err).decode(), lib.moe_error_message(err).decode(),
                          json.loads(lib.moe_error_details_json(err)))
        finally:
            lib.moe_error_destroy(err)


def create(name, *arguments):
    """The same for functions with one owned result: its pointer."""
    pointer = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(pointer))
    return pointer


def text_of(name, *arguments):
    """The same for functions that return text in a buffer."""
    buffer = create(name, *arguments)
    try:
        return ctypes.string_at(lib.moe_buffer_data(buffer), lib.moe_buffer_size(buffer)).decode()
    finally:
        lib.moe_buffer_destroy(buffer)
