"""What the rules do to one row's scores, compiled. In: scores [V], a rule book, the answer's ids.
Out: scores that are lowered or banned.

The same bits as core/rules/id_sets.py and core/rules/constrain.py, which are the readable truth.
"""

from __future__ import annotations

from streamer.model.kernels.arithmetic import compiled
from streamer.model.kernels.cells import ALNUM, BOOK, CODE, HAN, HAS_CONTENT, PURE_HAN, RUNS
from streamer.model.kernels.greedy import BANNED

_LONG_LINE = 64  # core/rules/id_sets.py's role_ids
_NEWLINE = 10


@compiled
def penalise(scores, book, marks, answer, n, penalty):
    """Each id of pure Han in the window once: `marks` holds who has been, then zeros again."""
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
def ban(scores, book, which):
    ends = book[BOOK.sets_at] + which
    for i in range(book[ends], book[ends + 1]):
        scores[book[i]] = BANNED


@compiled
def lower(scores, book, which, bias):
    ends = book[BOOK.sets_at] + which
    for i in range(book[ends], book[ends + 1]):
        scores[book[i]] -= bias


@compiled
def content_since(book, answer, n, marks, enough):
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
def line_kind(book, answer, n):
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
    letter = begin + 32 if 65 <= begin <= 90 else begin
    # h, u, a, s: human, user, assistant, system
    return -1 if letter in (104, 117, 97, 115) else 0


@compiled
def ban_adjacent(scores, book, answer, n):
    ban(scores, book, RUNS)
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
def ban_ngrams(scores, book, answer, n):
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
