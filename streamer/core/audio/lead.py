"""How far a stream is ahead of real time. In: seconds of audio, and when they were fed. Out: is it?

Who speaks is never ahead: audio comes as fast as it is spoken. Who sends a recording, or wants more
than a share, is. Where both want the same thread, the one who speaks goes first
(stages/plumbing/hearing_threads.py, model/scheduler.py).
"""

from __future__ import annotations

from dataclasses import dataclass

# A sound card's clock may run fast; over hours that is seconds of audio.
FREE_RATE = 1.25
# of audio at once: what a browser held back while it was starting, a message of a second
FREE_S = 2.0
# What a stream was silent for it may send at once, as after a cut link, but no more than this.
MOST_OWED_S = 30.0
MOST_PASSED = 8  # services of others, then those who are ahead have one


@dataclass(slots=True)
class Lead:
    """One stream's. `fed` is told of every piece; `is_ahead` may be read on any thread."""

    is_ahead: bool = False
    _lead_s: float = 0.0
    _at_s: float | None = None

    def fed(self, audio_s: float, at_s: float) -> None:
        """`audio_s` seconds came at `at_s`, in seconds of a clock that never goes back."""
        passed_s = at_s - (at_s if self._at_s is None else self._at_s)
        self._at_s = at_s
        self._lead_s = max(-MOST_OWED_S, self._lead_s - FREE_RATE * passed_s) + audio_s
        self.is_ahead = self._lead_s > FREE_S


@dataclass(slots=True)
class Precedence:
    """Who is ahead of real time lets others pass, but not for ever: one owner per queue.

    `lets_pass` is asked before each service, where both kinds wait.
    """

    num_passed: int = 0

    def lets_pass(self, is_anyone_on_time: bool, is_anyone_ahead: bool) -> bool:
        """Whether only those on time are served now. Counted only where somebody ahead waits."""
        if not is_anyone_ahead:
            return is_anyone_on_time
        if is_anyone_on_time and self.num_passed < MOST_PASSED:
            self.num_passed += 1
            return True
        self.num_passed = 0
        return False
