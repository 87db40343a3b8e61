"""Loop IR and its expressions: nodes, constructors, statements, printer, verifier, meaning."""

from akg_py.ir import printer as _printer  # nodes print themselves with it

__all__: list[str] = []
del _printer
