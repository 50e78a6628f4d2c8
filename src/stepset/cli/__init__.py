"""The command line: `stepset run|explain|validate|schema|status|logs|wait|cancel|list|diagnose`.

Modules here import only typer at the top; pydantic, YAML, rich and the backends are imported by the command that
needs them, so that `stepset --help` and completion are quick.
"""

from stepset.cli.app import main

__all__ = ["main"]
