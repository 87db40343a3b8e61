"""`akg_py cache`: what compiled code is kept on disk, and removing it."""

from __future__ import annotations

import click


@click.group()
def cache() -> None:
    """Look at compiled code on disk, or remove it."""


@cache.command()
def info() -> None:
    """Print where compiled code is kept, how much there is, and the limit."""
    from akg_py.codegen.cache import cache_info

    found = cache_info()
    click.echo(f"folder   {found.folder}")
    click.echo(f"kernels  {found.kernel_bytes:,} bytes in {_count(found.kernels, 'entry')}")
    click.echo(f"engines  {found.engine_bytes:,} bytes in {_count(found.engines, 'version')}")
    click.echo(f"limit    {found.limit_bytes:,} bytes ($AKG_PY_CACHE_BYTES)")


@cache.command()
def clear() -> None:
    """Remove all compiled code; it is compiled again when needed."""
    from akg_py.codegen.cache import cache_dir, clear_cache

    click.echo(f"removed {clear_cache():,} bytes from {cache_dir()}")


def _count(number: int, noun: str) -> str:
    plural = "entries" if noun == "entry" else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
