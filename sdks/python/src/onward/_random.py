"""Random numbers from a seed: those of `RandomGenerator` in the other languages."""

from __future__ import annotations

import builtins
from collections.abc import MutableSequence, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_MASK = 2**64 - 1


class RandomGenerator:
    """A generator of random numbers (SplitMix64). The same seed gives the same numbers in every language and version.

    Workflow code gets one from `ctx.random_generator()`.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        if not 0 <= seed <= _MASK:
            raise ValueError(f"a seed has 64 bits, not {seed}")
        self._state = seed

    def bits(self) -> int:
        """Draws 64 random bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((self._state ^ (self._state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def integer(self, low: int, high: int) -> int:
        """Draws an integer from `low` up to, but not including, `high`, each with the same probability."""
        size = high - low
        if not 1 <= size <= 2**64:
            raise ValueError(f"a range of random integers has 1 to 2**64 numbers, not {size}")
        unfair = 2**64 % size
        while (bits := self.bits()) < unfair:
            pass
        return low + bits % size

    def float(self) -> builtins.float:
        """Draws a number from 0 up to, but not including, 1."""
        return (self.bits() >> 11) * 2.0**-53

    def chance(self, probability: builtins.float) -> bool:
        """Returns true with this probability: 0 is never, 1 is always."""
        if not 0 <= probability <= 1:
            raise ValueError(f"a probability is between 0 and 1, not {probability}")
        return self.float() < probability

    def choice(self, items: Sequence[T]) -> T:
        """Draws an item, each with the same probability."""
        if not items:
            raise IndexError("there is nothing to choose from")
        return items[self.integer(0, len(items))]

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Brings the items into a random order, each with the same probability."""
        for place in range(len(items) - 1, 0, -1):
            other = self.integer(0, place + 1)
            items[place], items[other] = items[other], items[place]
