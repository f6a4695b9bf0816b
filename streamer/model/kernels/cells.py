"""The name of every number that Python writes for compiled code, or compiled code for Python.

An array of numbers has one table of names here, and both sides use it: `TEXT.keys` is the place of
that number. A name that is not in its table does not compile, and a number alone stands nowhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from numpy.typing import NDArray

T = TypeVar("T")


def put(cells: Any, table: Any, /, **numbers: int) -> None:
    """Write numbers into `cells` by their names in `table`. Raises AttributeError for others."""
    for name, number in numbers.items():
        cells[getattr(table, name)] = number


def address(array: NDArray[Any]) -> int:
    """Where its first number lies."""
    return int(array.__array_interface__["data"][0])


def _numbered(table: type[T]) -> T:
    """The table with each name's own place: 0, 1, 2 ..."""
    return table(*range(len(table._fields)))  # type: ignore[attr-defined]


class Text(NamedTuple):
    """A text step. Addresses of arrays, or the numbers that the comments tell."""

    spans: int  # int64 [num_spans, SPAN]
    parts: int  # int64 [MOST_CHUNKS, num_spans + 1, SPAN]: spans cut into chunks
    ids: int  # int64 [rows], -1 where an embedding stands in x already
    num_spans: int  # number
    logits: int  # float32 [num_logits, columns]
    num_logits: int  # number
    layers: int  # number, as the five that follow
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    ffn: int
    weights: int  # float32, or float16 as uint16: all layers in the order of use, in panels
    head: int  # as the weights: the last product
    vectors: int  # float32: norms and biases in the order of use
    eps: int  # float32 [1]
    cos: int  # float32 [num_angles, head_dim / 2]
    sin: int
    num_angles: int  # number
    keys: int  # float32 [layers, num_slots, kv_heads, length / PANEL, head_dim, PANEL]
    values: int  # float32 [layers, num_slots, kv_heads, length, padded head_dim]
    num_slots: int  # number
    length: int  # number: positions of a slot
    x: int  # float32 [rows, padded hidden]
    a: int  # float32 [rows, a_width]: work memory
    b: int  # float32 [rows, b_width]
    a_width: int  # number
    b_width: int  # number
    room: int  # float32: each thread's work memory of attention
    num_queries: int  # number: folded queries that `room` has space for
    columns: int  # number: ids of the vocabulary, padded
    table: int  # float32 [vocab, hidden]: embeddings


class Tower(NamedTuple):
    """A window through the audio tower. Addresses of arrays, or numbers."""

    frames: int  # float32 [num_frames + 2, mels]: zeros at both ends
    num_frames: int  # number
    positions: int  # number: half of the frames, rounded up
    out: int  # float32 [positions / 2, padded output]
    layers: int  # number, as the five that follow
    heads: int
    width: int
    ffn: int
    mels: int
    output: int
    weights: int  # as a text step's
    vectors: int  # float32 [num_vectors]
    num_vectors: int  # number
    places: int  # float32 [positions, padded width]: sinusoids
    hidden: int  # float32 [num_frames + 2, padded width]: zeros at both ends
    keys: int  # float32 [2, 1, heads, length / PANEL, dim, PANEL]: a layer's and the one's before
    values: int  # float32 [2, 1, heads, length, padded dim]
    x: int  # float32 [positions, padded width]
    a: int  # float32 [positions, a_width]
    b: int  # float32 [positions, b_width]
    a_width: int  # number
    b_width: int  # number
    room: int  # as a text step's
    num_queries: int  # number


class Product(NamedTuple):
    """A product in few bits (few_bits.py). Addresses of flat arrays, or numbers."""

    x: int  # int8 [rows, x_step]
    x_step: int  # number
    starts: int  # int32 [rows, groups]
    steps: int  # float32 [rows, groups]
    data: int  # int8, or uint8 where it is packed: [panels, groups, lines, LINE]
    scales: int  # float32 [panels, groups, COLUMNS]
    bias: int  # float32 [num_bias]
    num_bias: int  # number: width, or 0
    y: int  # float32 [rows, width]
    rows: int  # number, as those that follow
    width: int
    groups: int
    lines: int


class Attention(NamedTuple):
    """Attention beside such products. Addresses of arrays, or numbers."""

    qkv: int  # float32 [rows, (heads + 2 kv_heads) * dim]
    rows: int  # number
    spans: int  # int64 [num_spans, SPAN]
    num_spans: int  # number, as the three that follow
    heads: int
    kv_heads: int
    dim: int
    keys: int  # float32 [num_slots, kv_heads, length / PANEL, dim, PANEL]
    values: int  # float32 [num_slots, kv_heads, length, wide]
    num_slots: int  # number, as the two that follow
    length: int
    wide: int
    out: int  # float32 [rows, heads * dim]


class Span(NamedTuple):
    """One row of a step. In a chunk's last row of `parts`: how many spans it has, in `slot`, and
    how many logits the chunks before it want, in `start`."""

    slot: int
    start: int  # its first position in the slot
    first: int  # its first packed row
    n: int
    num_logits: int


TEXT = _numbered(Text)
TOWER = _numbered(Tower)
PRODUCT = _numbered(Product)
ATTENTION = _numbered(Attention)
SPAN = _numbered(Span)

MOST_CHUNKS = 16  # pieces of a job
# A board, on which the threads of one job count. Each cell has a cache line of its own.
APART = 8
OPEN, INSIDE, NEXT, THROUGH = range(0, 4 * APART, APART)
BOARD_CELLS = THROUGH + APART * MOST_CHUNKS  # THROUGH: how many phases each chunk is through
# What a job begins with, before the numbers of its kind: how many chunks and phases, whether it is
# a tower's, how many other threads to wake; where each chunk begins, and the last one ends; the
# first chunk whose keys each one looks at.
CHUNKS, PHASES, IS_TOWER, OTHERS, BEGINS = range(5)
LOOKS = BEGINS + MOST_CHUNKS + 1
OWN = LOOKS + MOST_CHUNKS
JOB_CELLS = OWN + max(len(TEXT), len(TOWER))

# What is shared in few bits (few_bits_share.py) is cut into shares of panels or rows, not chunks.
# On the board: helpers that sleep, and the number of the last job.
ASLEEP, NUMBER = (APART * i for i in (3, 4))
# Its job: what to do, how many panels or rows, in how many shares; then the numbers of its kind.
KIND, TOTAL, SHARES, SHARED = range(4)
OF_BYTES, PACKED, ATTENDING = range(3)  # kinds: products with 8 bits, with 4, attention
SHARED_CELLS = SHARED + max(len(PRODUCT), len(ATTENTION))
