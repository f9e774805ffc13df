"""Compile missing kernels in a process of their own, so that the compiler takes no memory of this one.

Compiling takes some 130 MB that a process never gives back. With `compile_elsewhere` a kernel that is
missing in numba's cache is compiled by a child process for exactly the types it was called with, and
loaded from the cache. The child stays for the next ones, because to import numba takes longer than most
kernels; it ends when none has come for some seconds, or this process ends. A warm cache is used as ever.
Where no cache can be written, or no process started, the process compiles the kernel itself.

Processes that share a cache take turns, by locks on bytes of one file in its folder: of those that miss the
same kernel one compiles it and the others wait, and its index is written by one at a time. Without that, two
that save a kernel for different types can give both the same file: numba reads the index, adds to it and
replaces it.
"""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from select import select
from typing import Any

from llvmlite import binding as llvm
from numba.core import environment
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.dispatcher import Dispatcher
from numba.core.runtime._nrt_python import c_helpers

from bigmc.kernels import decorators

#: Seconds without a request after which the child ends.
IDLE_SECONDS = 5.0
#: New objects after which the child looks for garbage. Compiling makes many that live long, and with Python's
#: 700 the looking took a quarter of the time; with these the child takes some 10 MB more.
GARBAGE_OBJECTS = 50_000, 20, 20


#: File of a cache folder whose bytes are locked.
LOCKS = "bigmc.lock"


@contextmanager
def _locked(folder: str, what: str) -> Iterator[None]:
    """Hold what is named alone among all processes, where the folder's file system can lock.

    The lock is on one byte of a file, chosen by the name's checksum: those that happen to share a byte wait
    for each other, no more. It ends with the process.
    """
    with suppress(OSError):
        os.makedirs(folder, exist_ok=True)
    try:
        handle = os.open(os.path.join(folder, LOCKS), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:  # nothing can be written there
        yield
        return
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.lockf(handle, fcntl.LOCK_EX, 1, zlib.crc32(what.encode()))
        yield
    finally:
        os.close(handle)


class _SharedCache(FunctionCache):
    """Numba's cache of one kernel, whose index other processes may write, too."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Add a compiled kernel to the cache."""
        with _locked(self.cache_path, self._cache_file._index_name):
            super().save_overload(sig, data)


class _ChildCache(_SharedCache):
    """Numba's cache of one kernel, filled by another process."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel, or None if this process must compile it."""
        loaded = self._loaded(sig, target_context)
        if loaded is not None:
            return loaded
        while on_miss:
            on_miss.pop()()
        with _locked(self.cache_path, f"{self._cache_file._index_name} {sig}"):
            loaded = self._loaded(sig, target_context)  # another process may have compiled it meanwhile
            if loaded is None and _compile_in_child(self._py_func, sig):
                loaded = self._loaded(sig, target_context)
        return loaded

    def _loaded(self, sig: Any, target_context: Any) -> Any:
        # Numba's own `load_overload` first lets the context import all that kernels may be compiled from:
        # 116 modules, 52 MB, a third of a second.
        name_runtime()
        with self._guard_against_spurious_io_errors(), _environments_without_modules():
            try:
                loaded = self._load_overload(sig, target_context)
            except (AttributeError, ImportError):  # an older version left it, whose types are gone
                self.flush()
                return None
        if loaded is None:
            return None
        if tuple(loaded.signature.args) != tuple(sig):  # two processes without locks gave a file to both
            self.flush()
            return None
        _leave_bitcode(loaded.library, partial(self._bitcode, sig, target_context))
        return loaded

    def _bitcode(self, sig: Any, target_context: Any) -> bytes:
        """Return LLVM's form of a kernel, from which others are compiled that call it."""
        with _environments_without_modules():
            saved = self._cache_file.load(self._index_key(sig, target_context.codegen()))
        _, _, (_, bitcode) = saved[0]  # name and kind of the library, then machine code and this
        return bytes(bitcode)


def _leave_bitcode(library: Any, read: Callable[[], bytes]) -> None:
    """Free what numba keeps to compile other kernels from: some five times the memory of the machine code.

    It is read again if a kernel that calls this one is compiled in this process after all.
    """
    module = getattr(library, "_shared_module", None)
    if module is None:  # a release of numba that keeps it elsewhere
        return

    def for_linking() -> Any:
        if library._shared_module is None:
            library._shared_module = llvm.parse_bitcode(read())
        return library._shared_module

    library._shared_module, library._get_module_for_linking = None, for_linking
    module.close()


@cache
def name_runtime() -> None:
    """Tell LLVM where the functions are that machine code calls to count references to arrays.

    That is all that loaded kernels need of numba's runtime. The rest is compiled anew in every process, which
    takes 20 ms: numba does so before it compiles a kernel.
    """
    for name, address in c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


@contextmanager
def _environments_without_modules() -> Iterator[None]:
    """Load kernels without importing the modules of all functions that were inlined into them.

    A cached kernel names an environment for each of these, mostly parts of numba's compiler. Machine code
    takes constants from an environment; the globals of its module serve Python objects alone, of which
    kernels know nothing. The caller holds numba's compiler lock.
    """
    own = getattr(environment, "_rebuild_env", None)
    if own is None:  # a release of numba that rebuilds them otherwise: its way takes longer, no more
        yield
        return
    environment._rebuild_env = _environment
    try:
        yield
    finally:
        environment._rebuild_env = own


def _environment(module: str, constants: list[Any], name: str) -> environment.Environment:
    """Return the environment of a name, which is made if there is none yet."""
    known: environment.Environment | None = environment.lookup_environment(name)
    if known is None:
        known = environment.Environment({"__name__": module})
        known.consts[:] = constants
        known.env_name = name
        environment.Environment._memo[name] = known
    return known


on_miss: list[Callable[[], None]] = []
"""What is called once, when the next kernel is missing in numba's cache."""

_equipped: dict[str, int] = {}
"""Modules whose kernels were given another cache, and how many names they had."""


def compile_elsewhere() -> None:
    """Let every kernel be compiled by a child process when it is called, also those imported later.

    One that numba's own cache loads costs 25 MB, see `_ChildCache`.
    """
    _equip(_ChildCache)
    if _compiled_elsewhere not in decorators.prepare:
        decorators.prepare.append(_compiled_elsewhere)


def _compiled_elsewhere(kernel: Dispatcher[Any]) -> None:
    """Give a kernel the cache that a child process fills."""
    if type(vars(kernel).get("_cache")) is FunctionCache:
        # To make another one would ask the file system about the kernel's source once more.
        vars(kernel)["_cache"].__class__ = _ChildCache


def _equip(kind: type[FunctionCache]) -> None:
    """Give every kernel imported so far a cache of this class instead of numba's own.

    Those that only kernels call are among them: whoever compiles loads them too.
    """
    inside = f"{__package__}."
    for name, module in list(sys.modules.items()):
        if name.startswith(inside) and _equipped.get(name) != len(vars(module)):
            _equipped[name] = len(vars(module))
            for kernel in vars(module).values():
                if isinstance(kernel, Dispatcher) and type(vars(kernel).get("_cache")) is FunctionCache:
                    vars(kernel)["_cache"].__class__ = kind


@dataclass
class _Child:
    """The process that compiles, and the one it does it for: a fork must not ask its parent's."""

    process: subprocess.Popen[bytes]
    owner: int

    @classmethod
    def started(cls) -> _Child:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(IDLE_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
        )
        return cls(process, os.getpid())

    def compiles(self, request: bytes) -> bool:
        """Return whether it did what was asked; if not, it has ended or is about to."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(request)
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        return self.process.stdout.read(1) == b"1"


def child_environment() -> dict[str, str]:
    """Return the environment of a child that imports what this process does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())}


def _import_path() -> list[str]:
    """Return the folders that the child imports from: those of this process, without the current one.

    Files beside the user's data, such as ``random.py``, must not be imported. The current folder stays if
    this package itself was imported from it.
    """
    current, package = os.getcwd(), str(Path(__file__).parents[2])
    folders = [os.path.abspath(folder) for folder in sys.path]
    return [folder for folder in folders if folder == package or folder != current]


_child: _Child | None = None


def _compile_in_child(function: Any, sig: Any) -> bool:
    """Return whether a child did it. The caller holds numba's compiler lock: one thread asks at a time."""
    global _child
    if not sys.executable:  # an embedded interpreter does not know its program
        return False
    request = pickle.dumps((function.__module__, function.__name__, sig))
    if _child is not None and _child.owner == os.getpid() and _child.compiles(request):
        return True
    try:
        _child = _Child.started()
    except OSError:
        return False
    return _child.compiles(request)


class _Library(JITCodeLibrary):
    """Numba's compiled code of one function; what Python cannot call is kept for other kernels alone.

    It is compiled into each that calls it, and optimised there. Numba would optimise it before as well, with
    all that it calls, and make machine code of it that nobody runs: a fifth of the time to compile.
    """

    _only_for_kernels = False

    def get_pointer_to_function(self, name: str) -> int:
        """Compile what is not compiled yet; returns 0 where there is no function of that name."""
        if not self._finalized:  # numba asks for the function that Python calls
            known = self._final_module.functions
            self._only_for_kernels = not any(f.name == name and not f.is_declaration for f in known)
        return int(super().get_pointer_to_function(name))

    def _optimize_final_module(self) -> None:
        if not self._only_for_kernels:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        if not self._only_for_kernels:
            super()._finalize_final_module()
            return
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        whole, self._final_module = self._final_module, self._environments()
        super()._finalize_final_module()
        self._places, self._final_module = self._final_module, whole  # the first belongs to numba's engine

    def _environments(self) -> Any:
        """Return a module of nothing but the places of environments, which numba fills at once."""
        places = [v.name for v in self._final_module.global_variables if v.linkage == llvm.Linkage.common]
        module = llvm.parse_assembly("\n".join(f'@"{name}" = common global i64 0' for name in places))
        module.name, module.triple = self._final_module.name, self._final_module.triple
        module.data_layout = self._final_module.data_layout
        return module


def serve(idle_seconds: float) -> None:
    """Compile what comes, one after the other; an error ends the process, which is the answer.

    It also ends when so many seconds have passed without a request.
    """
    JITCPUCodegen._library_class = _Library
    gc.freeze()  # what is imported stays
    gc.set_threshold(*GARBAGE_OBJECTS)
    answers = os.dup(1)
    os.dup2(2, 1)  # what compiling prints is no answer
    while select([sys.stdin], [], [], idle_seconds)[0]:
        try:
            module, name, sig = pickle.load(sys.stdin.buffer)  # from the process that started this one
        except EOFError:
            return
        kernel = getattr(import_module(module), name)
        _equip(_SharedCache)
        kernel.compile(sig)
        os.write(answers, b"1")


if __name__ == "__main__":
    serve(float(sys.argv[1]))
