"""One row's next id under the rules, compiled. In: raw logits [V], the answer's ids, a rule book.
Out: id, signal, end.

The same bits as core/rules/constrain.py (the readable truth), model/choose.py and
core/rules/stop.py in that order; the tests hold one against the other. What is rare is left to
them: a split character, a role word half said, all ids banned, a redraw.
"""

from __future__ import annotations

from streamer.model.kernels.arithmetic import compiled
from streamer.model.kernels.cells import (
    ALNUM,
    BOOK,
    CODE,
    COMMA,
    EARLY_END,
    EARLY_EOS,
    END,
    ENDS,
    EOS,
    FIRST_COMMA,
    HAN,
    HAS_CONTENT,
    INVALID,
    PURE_HAN,
    ROLE,
    RUNS,
)
from streamer.model.kernels.greedy import BANNED, first_best, measure

_LONG_LINE = 64  # core/rules/id_sets.py's role_ids
_NEWLINE = 10


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
    """Penalties, biases and bans of a whole answer's rules; False: it holds what is not read
    here."""
    flags = book[BOOK.flags_at]
    for i in range(n):
        if book[flags + answer[i]] & INVALID:
            return False
    _penalise(scores, book, marks, answer, n, penalty)
    min_new = book[BOOK.min_new]
    if book[BOOK.end_gap] and n >= min_new - 1:
        marks_of_end = (COMMA | END) if book[BOOK.since_any] else END
        count = _content_since(book, answer, n, marks_of_end, book[BOOK.end_gap])
        first_end = FIRST_COMMA + book[BOOK.comma_gap] + 1
        _lower(scores, book, first_end + count, bias)
    if n < min_new:
        _ban(scores, book, EARLY_END if n < min_new - 1 else EARLY_EOS)
    if book[BOOK.has_roles]:
        begun = _line(book, answer, n)
        if begun < 0:
            return False
        if begun > 0:
            _ban(scores, book, ROLE)
    if book[BOOK.comma_gap]:
        _ban(
            scores,
            book,
            FIRST_COMMA + _content_since(book, answer, n, COMMA | END, book[BOOK.comma_gap]),
        )
    if book[BOOK.adjacency]:
        _ban_adjacent(scores, book, answer, n)
    if book[BOOK.ngram]:
        _ban_ngrams(scores, book, answer, n)
    return True


@compiled
def _penalise(scores, book, marks, answer, n, penalty):
    """Each id of pure Han in the window once: `marks` holds who has been, and is zeros again behind
    it."""
    flags = book[BOOK.flags_at]
    first = max(0, n - book[BOOK.penalty_window])
    for i in range(first, n):
        token = answer[i]
        if book[flags + token] & PURE_HAN and not marks[token]:
            marks[token] = 1
            old = scores[token]
            # CTRL, arXiv 1909.05858
            scores[token] = old / penalty if old > 0 else old * penalty
    for i in range(first, n):
        marks[answer[i]] = 0


@compiled
def _ban(scores, book, which):
    ends = book[BOOK.sets_at] + which
    for i in range(book[ends], book[ends + 1]):
        scores[book[i]] = BANNED


@compiled
def _lower(scores, book, which, bias):
    ends = book[BOOK.sets_at] + which
    for i in range(book[ends], book[ends + 1]):
        scores[book[i]] -= bias


@compiled
def _content_since(book, answer, n, marks, enough):
    """core/text/characters.py's content_since, over ids from behind."""
    count = 0
    for i in range(n - 1, -1, -1):
        place = book[BOOK.starts_at] + answer[i]
        for j in range(book[place + 1] - 1, book[place] - 1, -1):
            character = book[book[BOOK.characters_at] + j]
            if count >= enough or character & marks:
                return count
            count += (character & ALNUM) != 0
    return min(count, enough)


@compiled
def _line(book, answer, n):
    """Of the line that the answer ends with: 1, it holds signs alone; 0, no role word begins it;
    -1, one may."""
    begin = 0
    length = 0
    for i in range(n - 1, -1, -1):
        place = book[BOOK.starts_at] + answer[i]
        is_broken = False
        for j in range(book[place + 1] - 1, book[place] - 1, -1):
            character = book[book[BOOK.characters_at] + j]
            if character & CODE == _NEWLINE:
                is_broken = True
                break
            length += 1
            if character & ALNUM:
                begin = character & CODE  # of the line's first letter, when the loop is over
            if length > _LONG_LINE:
                return 0
        if is_broken:
            break
    if begin == 0:
        return 1
    lower = begin + 32 if 65 <= begin <= 90 else begin
    # h, u, a, s: human, user, assistant, system
    return -1 if lower in (104, 117, 97, 115) else 0


@compiled
def _ban_adjacent(scores, book, answer, n):
    _ban(scores, book, RUNS)
    last = 0
    run = 0
    for i in range(n - 1, -1, -1):
        place = book[BOOK.starts_at] + answer[i]
        j = book[place + 1] - 1
        while j >= book[place] and run < 2:
            character = book[book[BOOK.characters_at] + j]
            if run == 0:
                last = character
                run = 1
            elif character == last:
                run = 2
            else:
                # one alone: 3 ends both loops
                run = 3
                j = 0
            j -= 1
        if run >= 2:
            break
    run = 1 if run == 3 else run
    if not last & HAN:
        return
    low = 0
    high = book[BOOK.num_codes]
    code = last & CODE
    while low < high:
        middle = (low + high) // 2
        if book[book[BOOK.codes_at] + middle] < code:
            low = middle + 1
        else:
            high = middle
    if low == book[BOOK.num_codes] or book[book[BOOK.codes_at] + low] != code:
        return
    is_word = book[book[BOOK.words_at] + low]
    for i in range(book[book[BOOK.openers_at] + low], book[book[BOOK.openers_at] + low + 1]):
        if not is_word or run + book[book[BOOK.runs_at] + i] > 2:
            scores[book[book[BOOK.firsts_at] + i]] = BANNED


@compiled
def _before(book, answer, i):
    """Place of the nearest id with content before place i, or -1."""
    i -= 1
    while i >= 0 and not book[book[BOOK.flags_at] + answer[i]] & HAS_CONTENT:
        i -= 1
    return i


@compiled
def _ban_ngrams(scores, book, answer, n):
    """Every content id whose n - 1 content ids before it are the last ones of the answer."""
    width = book[BOOK.ngram] - 1
    end = n
    following = _before(book, answer, n)
    while following >= 0:
        a = following
        b = end
        same = True
        for _ in range(width):
            a = _before(book, answer, a)
            b = _before(book, answer, b)
            if a < 0 or answer[a] != answer[b]:
                same = False
                break
        if same:
            scores[answer[following]] = BANNED
        following = _before(book, answer, following)


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
