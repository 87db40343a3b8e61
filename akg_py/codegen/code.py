"""The code of a Func: its key, its LLVM IR when that is needed, its object from the cache.

In: a Func; out: `Code`, which emits only what the cache doesn't have. `compile_all` has many of
them compiled in other processes: LLVM compiles one module at a time in a process, however many
threads ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from akg_py.codegen import objects, target
from akg_py.codegen.cache import read_entry
from akg_py.codegen.fingerprint import SOURCES, digest_func, digest_sources
from akg_py.ir.stmt import Buffer, Func

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from akg_py.codegen.emitter import Emitted


class Code:
    """What becomes of `func`.

    Args:
        inplace: output -> input that may be the same array.
        processor: what to generate for; the host by default.
    """

    def __init__(
        self,
        func: Func,
        inplace: Mapping[Buffer, Buffer] | None = None,
        processor: target.Processor | None = None,
    ) -> None:
        self.func, self.inplace = func, dict(inplace or {})
        self.processor = processor or target.host()

    @cached_property
    def digest(self) -> str:
        """The key in the cache."""
        found = digest_func(self.func, self.inplace, self.processor, objects.llvm_version())
        return objects.digest_of(f"; a Func\n{self.emitted.text}") if found is None else found

    @cached_property
    def emitted(self) -> Emitted:
        """The LLVM IR, and what its caller has to provide."""
        from akg_py.codegen.emitter import emit_func

        return emit_func(self.func, self.inplace, self.processor)

    def make(self) -> tuple[dict[str, Any], str]:
        """What the caller has to provide, as JSON data, and the IR to compile."""
        facts = asdict(self.emitted)
        return facts, facts.pop("text")

    def load(self) -> objects.Loaded:
        """The machine code; its facts are those of `make`."""
        return objects.load_as(self.digest, self.make, are_sources_unchanged)


def are_sources_unchanged() -> bool:
    """Whether a digest still tells which sources make the code: nobody has edited them since."""
    return digest_sources() == SOURCES


def compile_all(funcs: Iterable[Func], executor: Executor) -> list[Future[Any]]:
    """Have Funcs compiled by an executor; a later `CpuKernel(func)` only loads its code.

    A job is text and JSON data, so that any executor can carry it.

    Returns:
        A future for each Func that the cache lacks; its result is the bytes of the object.
    """
    jobs = []
    for code in map(Code, funcs):
        if read_entry(code.digest) is None and are_sources_unchanged():
            jobs.append(executor.submit(objects.compile_entry, code.digest, *code.make()))
    return jobs
