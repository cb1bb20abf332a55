"""`beltrami info`: what this installation consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beltrami import __version__
from beltrami.cli.console import make_console, print_json


@dataclass(frozen=True)
class InfoCommand:
    """Show versions and devices, for bug reports.

    Example: beltrami info
    """

    json: bool = False
    """Print one JSON object on stdout instead of a table."""

    def execute(self) -> None:
        """Print what this installation consists of."""
        facts = environment()
        if self.json:
            print_json(facts)
            return
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for name, value in facts.items():
            table.add_row(name, ", ".join(value) if isinstance(value, list) else str(value))
        make_console().print(table)


def environment() -> dict[str, Any]:
    """Versions and devices of this installation; JSON-able."""
    import platform
    from importlib.metadata import version

    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return {
        "beltrami": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "devices": devices,
        "threads": torch.get_num_threads(),
        **{name: version(name) for name in ("safetensors", "tyro", "rich")},
    }
