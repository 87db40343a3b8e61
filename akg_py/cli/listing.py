"""`akg_py targets` and `akg_py ops`: what there is."""

from __future__ import annotations

import click


@click.command()
def targets() -> None:
    """List the parts that kernels can be built for."""
    from akg_py.target import TARGETS

    width = max(map(len, TARGETS))
    for target in TARGETS.values():
        click.echo(f"{target.name:{width}}  {target.description}")


@click.command()
def ops() -> None:
    """List operators, their attributes and the targets they have schedules for."""
    from akg_py import library
    from akg_py.ops import operators
    from akg_py.tuning.worklist import shipped_lists

    for op in operators():
        click.echo(op.signature)
        families = ", ".join(library.families_of(op.name)) or "none"
        click.echo(f"    {op.about}; tunable on: {families}")
    click.echo(f"\nlists of workloads: {', '.join(shipped_lists())}")
