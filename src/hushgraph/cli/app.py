"""The `hushgraph` command: its parts, and what becomes of an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from hushgraph.cli import audit, compare, datasets, plan, predict, report, reproduce, train
from hushgraph.cli.failure import fail, usage_message
from hushgraph.cli.help_sections import SectionedCommand
from hushgraph.errors import HushgraphError
from hushgraph.training.interruption import treat_sigterm_as_interrupt

app = typer.Typer(
    name="hushgraph",
    help="Graph neural networks with node-level differential privacy.",
    epilog="Begin with: hushgraph demo. Every command has a --help of its own, with examples.",
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Graph neural networks with node-level differential privacy."""
    if version:
        import hushgraph

        typer.echo(f"hushgraph {hushgraph.__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command(cls=SectionedCommand, epilog=plan.EXAMPLES)(plan.plan)
app.command(cls=SectionedCommand, epilog=train.EXAMPLES)(train.train)
app.command(cls=SectionedCommand, epilog=predict.EXAMPLES)(predict.predict)
app.command(cls=SectionedCommand, epilog=compare.EXAMPLES)(compare.compare)
app.command(cls=SectionedCommand, epilog=report.EXAMPLES)(report.report)
app.command(cls=SectionedCommand, epilog=audit.EXAMPLES)(audit.audit)
app.command(cls=SectionedCommand, epilog=compare.DEMO_EXAMPLES)(compare.demo)
app.command(cls=SectionedCommand, epilog=datasets.EXAMPLES)(datasets.datasets)
app.command(cls=SectionedCommand, epilog=reproduce.EXAMPLES)(reproduce.reproduce)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code: 0 done, 1 failed, 2 bad input, 3 over budget."""
    given = None if arguments is None else list(arguments)
    try:
        with treat_sigterm_as_interrupt():
            code = app(args=given, prog_name="hushgraph", standalone_mode=False)
    except HushgraphError as error:
        return fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return fail(usage_message(error), 2)
    except (typer.Abort, KeyboardInterrupt):
        return fail("interrupted", 130)
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MemoryError, RuntimeError) as error:
        # torch has no type of its own for memory that the system refuses.
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        return fail("not enough memory; take a smaller model, batch or graph", 1)
    except FloatingPointError as error:
        return fail(f"{error}; take a lower learning rate", 1)
    except OSError as error:
        return fail(f"{error}; check the disk and the permissions", 1)
    return code if isinstance(code, int) else 0
