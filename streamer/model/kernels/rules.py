"""One row's next id under the rules, compiled. In: raw logits [V], the answer's ids, a rule book.
Out: id, signal, end.

The same bits as core/rules/constrain.py (the readable truth), model/choose.py and
core/rules/stop.py in that order; the tests hold one against the other. What is rare is left to
them: a split character, a role word half said, all ids banned, a redraw.
"""

from __future__ import annotations

from typing import Any

from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamer.model.kernels import rule_book as at
from streamer.model.kernels.arithmetic import compiled
from streamer.model.kernels.greedy import BANNED, first_best, measure

(
    NUM_IDS,
    PENALTY_WINDOW,
    ADJACENCY,
    NGRAM,
    COMMA_GAP,
    END_GAP,
    SINCE_ANY,
    MIN_NEW,
    MAX_NEW,
    LOCAL_WINDOW,
) = range(10)
LOCAL_COUNT, LOOP_GLOBAL, LOOP_MIN, LOOP_PERIOD, HAS_ROLES = range(10, 15)
FLAGS, STARTS, CHARACTERS, SETS, CODES, NUM_CODES, WORDS, OPENERS, FIRSTS, RUNS_AT = range(15, 25)
_HAS_CONTENT = at.HAS_CONTENT
_PURE_HAN = at.PURE_HAN
_INVALID = at.INVALID
_EOS = at.EOS
_ENDS = at.ENDS
_CODE = at.CODE
_ALNUM = at.ALNUM
_COMMA = at.COMMA
_END = at.END
_HAN = at.HAN
_EARLY_END = at.EARLY_END
_EARLY_EOS = at.EARLY_EOS
_ROLE = at.ROLE
_RUNS = at.RUNS
_FIRST_COMMA = at.FIRST_COMMA
_LONG_LINE = 64  # core/rules/id_sets.py's role_ids
_NEWLINE = 10


@intrinsic
def _floats(_context: Any, address: Any) -> Any:
    """A pointer to float32 of an address."""

    def codegen(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], cgutils.ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(address), codegen


@compiled
def next_id(address, scores, mask, book, marks, answer, n, penalty, bias, wants_signal):
    """(id, whether the answer ends with it, entropy, margin, log_prob); id -1: to be chosen the
    readable way.

    address: of raw logits [V] float32 (a tensor's own: its NumPy view takes longer than all this);
    scores [V] float32, is overwritten; mask [V] bool, or [0] where the rules are not `clean`; marks
    [V] int32 of the caller, zeros before and after; answer [>= n] int64, its first n ids are said.
    """
    raw = carray(_floats(address), len(scores))
    for i in range(len(raw)):
        scores[i] = raw[i]
    for i in range(len(mask)):
        scores[i] = BANNED if mask[i] else scores[i]
    if not _rule(scores, book, marks, answer, n, penalty, bias):
        return -1, False, 0.0, 0.0, 0.0
    token = first_best(scores)
    if (
        token < 0
        or book[book[FLAGS] + token] & _INVALID
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
    flags = book[FLAGS]
    for i in range(n):
        if book[flags + answer[i]] & _INVALID:
            return False
    _penalise(scores, book, marks, answer, n, penalty)
    min_new = book[MIN_NEW]
    if book[END_GAP] and n >= min_new - 1:
        marks_of_end = (_COMMA | _END) if book[SINCE_ANY] else _END
        count = _content_since(book, answer, n, marks_of_end, book[END_GAP])
        first_end = _FIRST_COMMA + book[COMMA_GAP] + 1
        _lower(scores, book, first_end + count, bias)
    if n < min_new:
        _ban(scores, book, _EARLY_END if n < min_new - 1 else _EARLY_EOS)
    if book[HAS_ROLES]:
        begun = _line(book, answer, n)
        if begun < 0:
            return False
        if begun > 0:
            _ban(scores, book, _ROLE)
    if book[COMMA_GAP]:
        _ban(
            scores,
            book,
            _FIRST_COMMA + _content_since(book, answer, n, _COMMA | _END, book[COMMA_GAP]),
        )
    if book[ADJACENCY]:
        _ban_adjacent(scores, book, answer, n)
    if book[NGRAM]:
        _ban_ngrams(scores, book, answer, n)
    return True


@compiled
def _penalise(scores, book, marks, answer, n, penalty):
    """Each id of pure Han in the window once: `marks` holds who has been, and is zeros again behind
    it."""
    flags = book[FLAGS]
    first = max(0, n - book[PENALTY_WINDOW])
    for i in range(first, n):
        token = answer[i]
        if book[flags + token] & _PURE_HAN and not marks[token]:
            marks[token] = 1
            old = scores[token]
            # CTRL, arXiv 1909.05858
            scores[token] = old / penalty if old > 0 else old * penalty
    for i in range(first, n):
        marks[answer[i]] = 0


@compiled
def _ban(scores, book, which):
    ends = book[SETS] + which
    for i in range(book[ends], book[ends + 1]):
        scores[book[i]] = BANNED


@compiled
def _lower(scores, book, which, bias):
    ends = book[SETS] + which
    for i in range(book[ends], book[ends + 1]):
        scores[book[i]] -= bias


@compiled
def _content_since(book, answer, n, marks, enough):
    """core/text/characters.py's content_since, over ids from behind."""
    count = 0
    for i in range(n - 1, -1, -1):
        place = book[STARTS] + answer[i]
        for j in range(book[place + 1] - 1, book[place] - 1, -1):
            character = book[book[CHARACTERS] + j]
            if count >= enough or character & marks:
                return count
            count += (character & _ALNUM) != 0
    return min(count, enough)


@compiled
def _line(book, answer, n):
    """Of the line that the answer ends with: 1, it holds signs alone; 0, no role word begins it;
    -1, one may."""
    begin = 0
    length = 0
    for i in range(n - 1, -1, -1):
        place = book[STARTS] + answer[i]
        is_broken = False
        for j in range(book[place + 1] - 1, book[place] - 1, -1):
            character = book[book[CHARACTERS] + j]
            if character & _CODE == _NEWLINE:
                is_broken = True
                break
            length += 1
            if character & _ALNUM:
                begin = character & _CODE  # of the line's first letter, when the loop is over
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
    _ban(scores, book, _RUNS)
    last = 0
    run = 0
    for i in range(n - 1, -1, -1):
        place = book[STARTS] + answer[i]
        j = book[place + 1] - 1
        while j >= book[place] and run < 2:
            character = book[book[CHARACTERS] + j]
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
    if not last & _HAN:
        return
    low = 0
    high = book[NUM_CODES]
    code = last & _CODE
    while low < high:
        middle = (low + high) // 2
        if book[book[CODES] + middle] < code:
            low = middle + 1
        else:
            high = middle
    if low == book[NUM_CODES] or book[book[CODES] + low] != code:
        return
    is_word = book[book[WORDS] + low]
    for i in range(book[book[OPENERS] + low], book[book[OPENERS] + low + 1]):
        if not is_word or run + book[book[RUNS_AT] + i] > 2:
            scores[book[book[FIRSTS] + i]] = BANNED


@compiled
def _before(book, answer, i):
    """Place of the nearest id with content before place i, or -1."""
    i -= 1
    while i >= 0 and not book[book[FLAGS] + answer[i]] & _HAS_CONTENT:
        i -= 1
    return i


@compiled
def _ban_ngrams(scores, book, answer, n):
    """Every content id whose n - 1 content ids before it are the last ones of the answer."""
    width = book[NGRAM] - 1
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
    for i in range(max(0, n - book[LOCAL_WINDOW]), n):
        count += answer[i] == token
    return book[LOCAL_WINDOW] > 0 and count >= book[LOCAL_COUNT]


@compiled
def _stops(book, answer, n, token):
    """core/rules/stop.py's stop, without the reason."""
    flags = book[book[FLAGS] + token]
    if flags & _EOS or n + 1 >= book[MAX_NEW] or (flags & _ENDS and n >= book[MIN_NEW] - 1):
        return True
    least = book[LOOP_MIN]
    most = book[LOOP_PERIOD]
    length = min(n + 1, max(least, 2 * most))
    for period in range(1, min(most, length // 2) + 1) if book[LOOP_GLOBAL] else range(0):
        width = max(least, 2 * period)
        if length >= width and answer[n - period] == token:
            at_odds = 0
            for i in range(n - width + 1 + period, n):
                at_odds += answer[i] != answer[i - period]
            if at_odds == 0:
                return True
    return False
