"""The command group, and how errors and warnings look."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import click

from akg_py.errors import AkgError

_COMMANDS = {"targets": "listing", "ops": "listing", "tune": "tune", "db": "db", "cache": "cache"}


class _Group(click.Group):
    """Loads a command's module when it is called; errors become one message and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        import importlib

        module = importlib.import_module(f"akg_py.cli.{_COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], _COMMANDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"commands: {', '.join(_COMMANDS)}"
            raise click.UsageError(f"{error.message} ({hint})", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                warnings.showwarning = _show_warning  # type: ignore[assignment]
                return super().invoke(ctx)
        except AkgError as error:
            click.echo(format_error(error), err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("interrupted; what was found so far is in the database", err=True)
            ctx.exit(1)
        except BrokenPipeError:
            sys.stderr.close()  # the reader of our output is gone
            ctx.exit(0)


def format_error(error: AkgError) -> str:
    """Kind, place in the user's data, message, hint; lines of Python mean nothing at a shell."""
    place = f"{error.where}: " if isinstance(error.where, str) and error.where else ""
    hint = f"\n  hint: {error.hint}" if error.hint else ""
    return f"{type(error).__name__}: {place}{error.message}{hint}"


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any
) -> None:
    click.echo(f"warning: {message}", err=True)


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
def main() -> None:
    """Tensor compiler and tuner for simulated Ascend NPUs.

    \b
    akg_py tune matmul:m=1024,n=2048,k=512
    akg_py tune bert-base
    akg_py db best tuning.jsonl
    """
