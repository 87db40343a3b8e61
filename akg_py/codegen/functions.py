"""The functions that are computed inline: one function of the module per name, format and lanes.

In: operands in their compute type; out: the unrounded result. LLVM inlines what `call` defines, so
that a kernel holds the text of each formula once.
"""

from __future__ import annotations

from collections.abc import Callable

from akg_py.codegen import exponentials, remainder, trigonometry
from akg_py.codegen.formulas import Formula
from akg_py.codegen.llvm import Builder, Val, type_text

FUNCTIONS: dict[str, Callable[..., Val]] = {
    "rsqrt": lambda m, x: m.div(1.0, m.sqrt(x)),  # 1.5 ulp
    "fmod": remainder.fmod,
    **{
        name: getattr(module, name)
        for module, names in (
            (exponentials, "exp exp2 expm1 log log2 log10 log1p sinh cosh tanh erf sigmoid pow"),
            (trigonometry, "sin cos tan asin acos atan atan2"),
        )
        for name in names.split()
    },
}


def call(b: Builder, name: str, args: list[Val]) -> Val:
    """A function of FUNCTIONS on floats or doubles, defined in the module when it is new."""
    joined = b.join(*args)
    elem, lanes = joined[0].elem, joined[0].lanes
    function = f"akg.{name}.{elem}.{lanes}"
    module = b.module
    if function not in module.definitions:
        inner = Builder(module)
        kind = type_text(elem, lanes)
        operands = [Val(f"%a{n}", elem, lanes) for n in range(len(joined))]
        result = FUNCTIONS[name](Formula(inner, elem), *operands)
        inner.at.end = f"ret {inner.splat(result, lanes).typed}"
        params = ", ".join(v.typed for v in operands)
        module.definitions[function] = (
            f"define internal {kind} @{function}({params}) alwaysinline #0 {{\n{inner.body()}\n}}"
        )
    return b.call(function, elem, lanes, *joined)
