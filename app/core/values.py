"""Values: dataclasses that never change after they are made."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def immutable(cls: type[T]) -> type[T]:
    """A dataclass that the type checker holds to be frozen; equal values are equal and hash alike.

    At run time nothing forbids an assignment: a frozen dataclass sets each field through `object.__setattr__`, which
    makes it three times as dear to create, and a short run creates about a hundred.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
