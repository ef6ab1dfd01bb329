"""Options of a benchmark run."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int = 5
    """Alternated rounds; what is reported is their median."""
    profile: Path | None = None
    """A folder: the server is sampled and the profile written there. The figures of such a run do not count."""

    def samples(self, name: str) -> Path | None:
        return None if self.profile is None else self.profile.resolve() / f"{name}.txt"
