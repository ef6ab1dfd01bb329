"""The report of one benchmark: rows of what was measured, beside what it should be."""

from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    value: str
    target: str = ""
    met: bool | None = None
    """Whether the target was reached; `None` for a figure that has none."""


@dataclass(slots=True)
class Report:
    title: str
    rows: list[Row] = field(default_factory=list[Row])

    def add(self, what: str, value: str) -> None:
        """A figure without a target."""
        self.rows.append(Row(what, value))

    def at_most(self, what: str, value: float, limit: float, unit: str) -> None:
        self.rows.append(Row(what, f"{value:,.4g} {unit}", f"<= {limit:,.4g} {unit}", value <= limit))

    def at_least(self, what: str, value: float, limit: float, unit: str = "") -> None:
        self.rows.append(Row(what, f"{value:.3f} {unit}".rstrip(), f">= {limit:.4g} {unit}".rstrip(), value >= limit))

    @property
    def met(self) -> bool:
        return all(row.met is not False for row in self.rows)

    def show(self) -> None:
        table = Table(title=self.title, title_justify="left")
        table.add_column("measured")
        table.add_column("value", justify="right")
        table.add_column("target", justify="right")
        table.add_column("")
        for row in self.rows:
            table.add_row(row.what, row.value, row.target, {True: "ok", False: "MISSED", None: ""}[row.met])
        Console(width=110).print(table)
