"""Finds and loads the shared library: LIBMOE_PATH, else the one inside this package, else the loader's.

ctypes releases the interpreter lock during a call, so several threads can apply a layer at once. Every parameter
has a type, since ctypes would cut an undeclared pointer to 32 bits.
"""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable

from ._abi import ABI_VERSION, PROTOTYPES, VERSION
from ._errors import Unsupported

SONAME = f"libmoe.so.{ABI_VERSION}"


class _Symbol(ctypes.Structure):
    """Dl_info of dlfcn.h"""
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


def _file_of(function: Any, asked: str) -> str:
    """The file that a function came from: the loader chooses it where only the name is known."""
    symbol = _Symbol()
    address = ctypes.cast(function, ctypes.c_void_p)
    try:
        found = ctypes.CDLL(None).dladdr(address, ctypes.byref(symbol))
    except AttributeError:
        found = 0
    return os.fsdecode(symbol.file) if found and symbol.file else asked


def _absent(name: str, path: str, version: str) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise Unsupported(9, name, f"{path} is libmoe {version} and has no {name}; this package knows {VERSION}", {})
    return function


def load(path: str) -> ctypes.CDLL:
    """The library at a path, its functions declared; ImportError when it is none, or one of another ABI."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"libmoe is not found: {error}; LIBMOE_PATH={os.environ.get('LIBMOE_PATH', '')!r} may name "
                          f"the file, else it is {SONAME} in this package or known to the loader") from error
    try:
        path, number = _file_of(library.moe_abi_version, path), library.moe_abi_version()
        library.moe_version_string.restype = ctypes.c_char_p
        version = library.moe_version_string().decode()
    except AttributeError as error:
        raise ImportError(f"{path} is not libmoe: {error}") from error
    if number != ABI_VERSION:
        raise ImportError(f"{path} is libmoe {version} with ABI {number}; this package is {VERSION} and needs ABI "
                          f"{ABI_VERSION}")
    for name, (result, parameters, _) in PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError:  # an older one of the same ABI
            setattr(library, name, _absent(name, path, version))
        else:
            function.restype, function.argtypes = result, parameters
    library.path = path  # type: ignore[attr-defined]
    return library


def _path() -> str:
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)
    return os.environ.get("LIBMOE_PATH") or (inside if os.path.exists(inside) else SONAME)


lib = load(_path())
