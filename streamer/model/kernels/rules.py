"""One row's next id under the rules, compiled. In: raw logits [V], the answer's ids, a rule book.
Out: id, signal, end.

The same bits as core/rules/constrain.py (the readable truth), model/choose.py and
core/rules/stop.py in that order; the tests hold one against the other. What is rare is left to
them: a split character, a role word half said, all ids banned, a redraw.
"""

from __future__ import annotations

from streamer.model.kernels.arithmetic import compiled
from streamer.model.kernels.bans import (
    ban,
    ban_adjacent,
    ban_ngrams,
    content_since,
    line_kind,
    lower,
    penalise,
)
from streamer.model.kernels.cells import (
    BOOK,
    COMMA,
    EARLY_END,
    EARLY_EOS,
    END,
    ENDS,
    EOS,
    FIRST_COMMA,
    INVALID,
    ROLE,
)
from streamer.model.kernels.greedy import BANNED, first_best, measure


@compiled
def next_id(raw, scores, mask, book, marks, answer, n, penalty, bias, wants_signal):
    """(id, whether the answer ends with it, entropy, margin, log_prob); id -1: to be chosen the
    readable way.

    raw: logits [V] float32; scores [V] float32, is overwritten; mask [V] bool, or [0] where the
    rules are not `clean`; marks [V] int32 of the caller, zeros before and after; answer [>= n]
    int64, its first n ids are said.
    """
    for i in range(len(raw)):
        scores[i] = raw[i]
    for i in range(len(mask)):
        scores[i] = BANNED if mask[i] else scores[i]
    if not _rule(scores, book, marks, answer, n, penalty, bias):
        return -1, False, 0.0, 0.0, 0.0
    token = first_best(scores)
    if (
        token < 0
        or book[book[BOOK.flags_at] + token] & INVALID
        or _stands_too_often(book, answer, n, token)
    ):
        return -1, False, 0.0, 0.0, 0.0
    entropy = margin = log_prob = 0.0
    if wants_signal:
        entropy, margin, log_prob = measure(raw, token)
    return token, _stops(book, answer, n, token), entropy, margin, log_prob


@compiled
def _rule(scores, book, marks, answer, n, penalty, bias):
    """Penalties, biases and bans of an answer's rules; False: it holds what is not read here."""
    flags = book[BOOK.flags_at]
    for i in range(n):
        if book[flags + answer[i]] & INVALID:
            return False
    penalise(scores, book, marks, answer, n, penalty)
    min_new = book[BOOK.min_new]
    if book[BOOK.end_gap] and n >= min_new - 1:
        marks_of_end = (COMMA | END) if book[BOOK.since_any] else END
        count = content_since(book, answer, n, marks_of_end, book[BOOK.end_gap])
        first_end = FIRST_COMMA + book[BOOK.comma_gap] + 1
        lower(scores, book, first_end + count, bias)
    if n < min_new:
        ban(scores, book, EARLY_END if n < min_new - 1 else EARLY_EOS)
    if book[BOOK.has_roles]:
        begun = line_kind(book, answer, n)
        if begun < 0:
            return False
        if begun > 0:
            ban(scores, book, ROLE)
    if book[BOOK.comma_gap]:
        ban(
            scores,
            book,
            FIRST_COMMA + content_since(book, answer, n, COMMA | END, book[BOOK.comma_gap]),
        )
    if book[BOOK.adjacency]:
        ban_adjacent(scores, book, answer, n)
    if book[BOOK.ngram]:
        ban_ngrams(scores, book, answer, n)
    return True


@compiled
def _stands_too_often(book, answer, n, token):
    """002's local rule: the candidate is to be drawn again."""
    count = 0
    for i in range(max(0, n - book[BOOK.local_window]), n):
        count += answer[i] == token
    return book[BOOK.local_window] > 0 and count >= book[BOOK.local_count]


@compiled
def _stops(book, answer, n, token):
    """core/rules/stop.py's stop, without the reason."""
    flags = book[book[BOOK.flags_at] + token]
    if flags & EOS or n + 1 >= book[BOOK.max_new] or (flags & ENDS and n >= book[BOOK.min_new] - 1):
        return True
    least = book[BOOK.loop_min]
    most = book[BOOK.loop_period]
    length = min(n + 1, max(least, 2 * most))
    for period in range(1, min(most, length // 2) + 1) if book[BOOK.loop_global] else range(0):
        width = max(least, 2 * period)
        if length >= width and answer[n - period] == token:
            at_odds = 0
            for i in range(n - width + 1 + period, n):
                at_odds += answer[i] != answer[i - period]
            if at_odds == 0:
                return True
    return False
