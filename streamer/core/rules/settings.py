"""Every rule's setting and its default. In: options. Out: checked `Rules`.

docs/decoding.md tells what each rule is for. The comments name the fix report that asked for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

ALL = "all"  # in the place of attributes' names: those that the card has
# The least value of a setting, otherwise 0. Divisors of logits: in float32 a smaller one would make
# them infinite, or be 0 itself.
_LEAST = {
    "max_new_tokens": 1,
    "loop_top": 1,
    "loop_count": 1,
    "loop_min_ids": 2,
    "repetition_penalty": 1e-3,
    "loop_temperature": 1e-3,
}


@dataclass(frozen=True)
class Rules:
    """The table of rules. A number of 0, a penalty of 1, "" or False switches a rule off."""

    repetition_penalty: float = 1.22  # Report 5: on ids of pure Han; never on punctuation
    penalty_window: int = 128  # Report 4: how many answer ids back
    # Report 5: no Han character twice in a row across ids, unless the double is a word
    adjacency: bool = True
    ngram: int = 3  # Reports 4, 5: no n-gram of content ids twice, punctuation left out
    # Report 5: content characters since the last punctuation before a comma-like
    comma_gap: int = 4
    end_gap: int = 8  # Report 5: with fewer content characters a sentence end is lowered ...
    end_bias: float = 8.0  # ... by this bias
    # counted since the last "sentence" end, or "punctuation" of any kind (report 5)
    end_since: str = "sentence"
    # Report 5: the end of the sentence is at least this id; EOS may follow after as many
    min_new_tokens: int = 16
    max_new_tokens: int = 96
    # Report 3: a candidate that stands `loop_count` times in the last `loop_window` ids
    loop_local: bool = True
    loop_window: int = 4  # report 3
    loop_count: int = 2  # report 3
    loop_top: int = 5  # Report 3: is drawn again among this number
    loop_temperature: float = 0.8  # Report 3: at this temperature
    # Report 3: stop when the last max(loop_min_ids, 2p) ids have period p ...
    loop_global: bool = True
    loop_min_ids: int = 8  # report 3
    loop_max_period: int = 8  # ... for some p up to this; its own test missed its own cycle
    # never: specials, role words, line breaks, text after an end, split characters
    clean: bool = True
    # Each sentence names these attributes once each, and no other, by the phrases of the model's
    # card: their names with commas between them, or "all" of the card; "" is any sentence
    form: str = ALL
    # of the sentence: one that the model's card has; "" is the card's first
    language: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for settings that mean nothing."""
        if self.end_since not in ("sentence", "punctuation"):
            raise ValueError(f'end_since is "sentence" or "punctuation", not {self.end_since!r}')
        for name, value in vars(self).items():
            least = _LEAST.get(name, 0)
            if isinstance(value, (int, float)) and not value >= least:
                raise ValueError(f"{name} must be at least {least}, not {value}")

    def saying(self, said: str) -> Rules:
        """For sentences that name the attributes `said`, as `form` has them: these may be short."""
        return self if said == ALL else replace(self, form=said, min_new_tokens=0)

    @classmethod
    def off(cls, **kept: Any) -> Rules:
        """Every rule off, `min_new_tokens` too; `kept` sets fields back. `max_new_tokens` stays."""
        switched: dict[str, Any] = {
            "repetition_penalty": 1.0,
            "adjacency": False,
            "ngram": 0,
            "comma_gap": 0,
            "end_gap": 0,
            "min_new_tokens": 0,
            "loop_local": False,
            "loop_global": False,
            "clean": False,
            "form": "",
        }
        return cls(**(switched | kept))
