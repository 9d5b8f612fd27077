#!/usr/bin/env python3
"""Writes the test vectors of rule 9 of docs/numerics.md, products over pairs of bf16, in vectors.json: one output each, inputs and result as
the bits of their numbers.

Its arithmetic is exact fractions, rounded as the page says; it was written from the page, not from the kernels, so that one checks the other.

SPDX-License-Identifier: Apache-2.0

    make_vectors.py            write
    make_vectors.py --check    exit 1 if the file is not what would be written
"""
import json
import pathlib
import random
import sys
from fractions import Fraction

HERE = pathlib.Path(__file__).resolve().parent
NAN, INFINITY = 0x7FC00000, 0x7F800000
LEAST = Fraction(1, 2**126)  # the smallest normal number


def value(bits):
    """Of float32 bits that are finite."""
    exponent, fraction = bits >> 23 & 255, bits & 0x7FFFFF
    size = Fraction(fraction, 2**149) if exponent == 0 else Fraction(fraction | 0x800000) * Fraction(2) ** (exponent - 150)
    return -size if bits >> 31 else size


def is_nan(bits):
    return bits & 0x7FFFFFFF > INFINITY


def is_infinite(bits):
    return bits & 0x7FFFFFFF == INFINITY


def nearest(number, flush):
    """The bits of a fraction other than 0, rounded to 24 bits, ties to even. With `flush` whatever its exponent, and what is then below the
    smallest normal number is zero; without, subnormal numbers are kept."""
    sign, size = (0x80000000, -number) if number < 0 else (0, number)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** (exponent - 23 if flush else max(exponent - 23, -149))
    whole, rest = divmod(size, unit)
    if rest * 2 > unit or rest * 2 == unit and whole % 2 == 1:
        whole += 1
    size = whole * unit
    if flush and size < LEAST:
        return sign
    if size >= Fraction(2) ** 128:
        return sign | INFINITY
    if size < LEAST:
        return sign | int(size * 2**149)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    return sign | exponent + 127 << 23 | int(size / Fraction(2) ** (exponent - 23)) - 0x800000


def flushed(bits):
    """Zero of its sign for a subnormal number."""
    return bits if bits & INFINITY else bits & 0x80000000


def fused(x, w, a):
    """F(x, w, a) of the page."""
    x, w, a = flushed(x), flushed(w), flushed(a)
    if is_nan(x) or is_nan(w) or is_nan(a):
        return NAN
    sign = (x ^ w) & 0x80000000
    if is_infinite(x) or is_infinite(w):
        if not (x & 0x7FFFFFFF and w & 0x7FFFFFFF) or is_infinite(a) and a & 0x80000000 != sign:
            return NAN
        return sign | INFINITY
    if is_infinite(a):
        return a
    exact = value(x) * value(w) + value(a)
    if exact == 0:  # opposite zeros and what cancels give +0
        product_is_zero = not (x & 0x7FFFFFFF and w & 0x7FFFFFFF)
        return sign if product_is_zero and not a & 0x7FFFFFFF and a & 0x80000000 == sign else 0
    return nearest(exact, True)


def plus(a, b):
    """IEEE addition."""
    if is_nan(a) or is_nan(b) or is_infinite(a) and is_infinite(b) and a != b:
        return NAN
    if is_infinite(a) or is_infinite(b):
        return a if is_infinite(a) else b
    exact = value(a) + value(b)
    if exact == 0:
        return a if a == b else 0
    return nearest(exact, False)


def to_bf16(bits):
    """float32 bits to those of the bf16 nearest, ties to even, as the upper half of float32 bits."""
    if is_nan(bits):
        return NAN
    lower, bits = bits & 0xFFFF, bits & 0xFFFF0000
    return bits + 0x10000 if lower > 0x8000 or lower == 0x8000 and bits & 0x10000 else bits


def product(x, w, segments):
    x, w = [to_bf16(one) for one in x], [one << 16 for one in w]
    length = len(x) // segments
    sums = []
    for begin in range(0, len(x), length):
        a = 0
        for k in range(begin, begin + length, 2):
            last = k + 1 == begin + length
            a = fused(x[k], w[k], fused(0, 0, a) if last else fused(x[k + 1], w[k + 1], a))
        sums.append(a)
    while len(sums) > 1:
        sums = [plus(sums[i], sums[i + 1]) for i in range(0, len(sums), 2)]
    return NAN if is_nan(sums[0]) else sums[0]


def power(exponent, negative=False):
    return (0x80000000 if negative else 0) | exponent + 127 << 23


def half(bits):
    assert bits & 0xFFFF == 0
    return bits >> 16


ONE, DENORMAL, MINUS_ZERO = power(0), 0x00010000, 0x80000000


def written():
    """The corners, one by one: name, x, w, segments."""
    two = lambda name, x, w: (name, x, [half(one) for one in w], 1)
    yield two("the later of a pair comes first", [power(30), power(0)], [power(0), power(0)])
    yield two("the order shows", [power(24), power(0), power(24, True), 0], [power(0), power(0), power(0), power(0)])
    yield two("the order shows within a pair", [0x3F810000, 0x3F800000], [0x3F810000, power(-24)])
    yield two("an activation is rounded to even", [0x3F808000, 0x3F818000], [ONE, power(8)])
    yield two("an activation rounds up to infinity", [0x7F7FFFFF, 0], [ONE, 0])
    yield two("an activation rounds up from a denormal", [0x007FFFFF, 0], [power(100), 0])
    yield two("a denormal activation is zero", [DENORMAL, 0], [power(127), 0])
    yield two("a denormal weight is zero", [power(127), 0], [DENORMAL, 0])
    yield two("a denormal times infinity is NaN", [DENORMAL, 0], [INFINITY, 0])
    yield two("a tiny product is zero", [power(-64), 0], [power(-63), 0])
    yield two("the smallest normal number stays", [power(-63), 0], [power(-63), 0])
    yield two("a tiny difference is zero, in the middle of a pair too", [power(-63), power(-63, True), 0, power(-62)], [power(-63), 0x1FC00000, 0, 0x1F400000])
    for name, exponent in ("half a unit below", -151), ("a unit below", -150), ("two units below", -149), ("a quarter below", -152):
        yield two(name + " the smallest normal number", [power(-75, True), 0, 0, power(-63)], [power(exponent + 75), 0, 0, power(-63)])
        yield two(name + " the smallest normal number, later of its pair", [0, power(-75, True), 0, power(-63)], [0, power(exponent + 75), 0, power(-63)])
        yield two(name + " the smallest normal number, after it", [0, power(-63), power(-75, True), 0], [0, power(-63), power(exponent + 75), 0])
    yield two("more than half a unit below the smallest normal number", [0, power(-63, True), 0x1A400000, 0], [0, power(-63), power(-76), 0])
    yield two("a product overflows", [power(127), power(127, True)], [power(127), power(127)])
    yield two("the largest number stays", [0x7F7F0000, power(51)], [ONE, power(51)])
    yield two("infinity less infinity", [INFINITY, INFINITY], [ONE, power(0, True)])
    yield two("NaN in an activation", [NAN, 0], [ONE, 0])
    yield two("NaN in a weight", [ONE, 0], [0x7FC10000, 0])
    yield two("zeros that are negative", [MINUS_ZERO, MINUS_ZERO], [ONE, ONE])
    yield two("a lone negative zero", [MINUS_ZERO], [ONE])
    yield two("one input", [0x3FC00000], [0x40400000])
    yield ("segments of three", [ONE, power(1), power(24), ONE, power(1), power(-24)], [half(ONE)] * 6, 2)
    yield ("segments of one", [power(k) for k in range(8)], [half(ONE)] * 8, 8)
    yield ("the tree keeps denormals", [power(-63), 0, power(-63, True), 0], [half(power(-63)), 0, half(0x20400000), 0], 2)
    yield two("one without a partner makes the chain's negative zero positive", [power(-64, True), 0, MINUS_ZERO], [power(-63), 0, ONE])
    yield two("a chain may end in a negative zero", [power(-64, True), 0], [power(-63), 0])


def drawn():
    """Random ones: exponents near 1, of the whole range, tiny, and the odd ones among others."""
    draw = random.Random(15)
    odd = [0, MINUS_ZERO, DENORMAL, 0x807F0000, INFINITY, 0xFF800000, NAN, 0x7F7F0000, 0x00800000, 0x80800000]
    kinds = {"near one": (120, 134), "wide": (100, 160), "tiny": (50, 80), "all": (0, 255), "at the edge": (60, 68)}
    for kind, (low, high) in kinds.items():
        for columns, segments in (1, 1), (2, 1), (7, 1), (8, 4), (16, 2), (24, 8), (30, 2), (64, 8), (200, 8), (56, 8):
            for some_odd in False, True:
                number = lambda: draw.getrandbits(1) << 31 | draw.randrange(low, high) << 23 | draw.getrandbits(23)
                x, w = [number() for _ in range(columns)], [number() & 0xFFFF0000 for _ in range(columns)]
                for _ in range(1 + columns // 8 if some_odd else 0):
                    x[draw.randrange(columns)] = draw.choice(odd[: 4 if columns > 7 else 10])
                    w[draw.randrange(columns)] = draw.choice(odd[: 4 if columns > 7 else 10])
                yield f"{kind}, {columns} in {segments}" + (", odd ones" if some_odd else ""), x, [one >> 16 for one in w], segments


def content():
    lines = []
    for name, x, w, segments in [*written(), *drawn()]:
        lines.append(json.dumps({"name": name, "segments": segments, "x": x, "w": w, "y": product(x, w, segments)}))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main(arguments):
    path = HERE / "vectors.json"
    if "--check" not in arguments:
        path.write_text(content(), encoding="utf-8")
    elif not path.is_file() or path.read_text(encoding="utf-8") != content():
        sys.exit("vectors.json is not what make_vectors.py writes")


if __name__ == "__main__":
    main(sys.argv[1:])
