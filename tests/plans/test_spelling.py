"""What hides in a text is marked, nothing is lost, and ordinary writing is left alone."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans.spelling import Piece, has_deception, tokens


def marked(text: str) -> list[tuple[str, str, str]]:
    pieces = tokens(text)
    assert "".join(piece.text for piece in pieces) == text
    return [(piece.text, piece.kind, piece.label) for piece in pieces if not piece.is_plain]


@pytest.mark.parametrize(
    ("text", "kind", "label"),
    [
        ("ACC-\u202e401", "bidi", "U+202E right-to-left override"),
        ("\u2066x\u2069", "bidi", "U+2066 left-to-right isolate"),
        ("x\u061c", "bidi", "U+061C arabic letter mark"),
        ("prod\u200b", "invisible", "U+200B zero width space"),
        ("prod\u00ad1", "invisible", "U+00AD soft hyphen"),
        ("\ufeffprod", "invisible", "U+FEFF zero width no-break space"),
        ("pr\u200dod", "invisible", "U+200D zero width joiner"),
        ("prod\u3164", "invisible", "U+3164 hangul filler"),
        ("prod\u2800", "invisible", "U+2800 braille pattern blank"),
        ("prod\ufe0f", "invisible", "U+FE0F variation selector-16"),
        ("prod\u034f", "invisible", "U+034F combining grapheme joiner"),
        ("prod\U000e0041", "tag", "U+E0041 tag latin capital letter a"),
        ("\u0430cme", "lookalike", "U+0430 cyrillic small letter a, looks like a"),
        ("pr\u03bfd", "lookalike", "U+03BF greek small letter omicron, looks like o"),
        ("pro\u0501", "lookalike", "U+0501 cyrillic small letter komi de, looks like d"),
        ("\u0251cme", "lookalike", "U+0251 latin small letter alpha, looks like a"),
        ("\uff21CC", "lookalike", "U+FF21 fullwidth latin capital letter a, looks like A"),
        ("\U0001d41acme", "lookalike", "U+1D41A mathematical bold small a, looks like a"),
        ("ACC\u2011104", "lookalike", "U+2011 non-breaking hyphen, looks like -"),
        ("invoice\u22154412", "lookalike", "U+2215 division slash, looks like /"),
        ("1\u0662", "lookalike", "U+0662 arabic-indic digit two, among other digits, reads 2"),
        ("a\0b", "control", "U+0000 null"),
        ("a\x1b[2J", "control", "U+001B escape"),
        ("a\rb", "control", "U+000D carriage return"),
        ("a\x85b", "control", "U+0085 next line"),
        ("a\x9bb", "control", "U+009B control character"),
        ("a\u00a0b", "space", "U+00A0 no-break space"),
        ("a\u2003b", "space", "U+2003 em space"),
        ("a\u2028b", "space", "U+2028 line separator"),
        ("\ud800", "unassigned", "U+D800 half of a pair"),
        ("\ue000", "unassigned", "U+E000 private use"),
        ("\U000e0fff", "unassigned", "U+E0FFF unassigned"),
        ("\u212b", "composition", "U+212B angstrom sign, also spelled U+00C5"),
        ("x\u0336y", "composition", "x + U+0336 combining long stroke overlay"),
        ("\u0301a", "composition", "U+0301 combining acute accent"),
        ("\u1112\u1161\u11ab", "composition", "U+1112 hangul choseong hieuh, a syllable written in parts"),
    ],
)
def test_p54_what_deceives_is_marked_named_and_warned_of(text: str, kind: str, label: str) -> None:
    found = marked(text)
    assert (found[0][1], found[0][2]) == (kind, label)
    warnings = has_deception(text)
    assert any(label in warning for warning in warnings)
    assert all(character.isprintable() for warning in warnings for character in warning)


@pytest.mark.parametrize(
    "text", ["\u0430\u0441\u0435", "invoice/\u0430\u0441\u0435", "\u0430\u0455m\u0435", "\u0421\u041e\u0420"]
)
def test_p54_a_word_made_only_of_lookalikes_is_marked_letter_by_letter(text: str) -> None:
    odd = [character for character in text if not character.isascii()]
    assert [piece for piece, kind, _ in marked(text) if kind == "lookalike"] == odd
    assert len(has_deception(text)) == 1


def test_p54_the_letters_of_another_alphabet_stand_out_in_either() -> None:
    assert [piece for piece, _, _ in marked("\u0420a\u0441\u0441\u043aa\u0437")] == ["a", "a"]
    assert [label for _, _, label in marked("\u0416cme")] == ["U+0416 cyrillic capital letter zhe, among latin letters"]


def test_p54_right_to_left_letters_beside_digits_are_warned_of() -> None:
    assert has_deception("\u05d3\u05d5\u05d7 12") == [
        "Right-to-left letters beside others: parts may be shown in another order than they are sent in."
    ]
    assert has_deception("\u05d3\u05d5\u05d7") == []


def test_p55_a_run_of_spaces_is_told_by_its_length_and_hides_no_end() -> None:
    text = "x" * 200 + "\u00a0" * 300 + "DELETE-ALL"
    assert [(piece.text, piece.label) for piece in tokens(text)] == [
        ("x" * 200, ""), ("\u00a0" * 300, "U+00A0 no-break space \u00d7300"), ("DELETE-ALL", ""),
    ]  # fmt: skip
    assert has_deception(text) == ["Spaces that are easy to miss: U+00A0 no-break space \u00d7300."]
    assert [piece.text for piece in tokens("a" + " " * 300 + "b")] == ["a", " " * 300, "b"]


def test_p56_outer_spaces_and_a_decomposed_letter_are_marked() -> None:
    assert marked("  cafe\u0301  ") == [
        ("  ", "space", "2 leading spaces"),
        ("e\u0301", "composition", "e + U+0301 combining acute accent"),
        ("  ", "space", "2 trailing spaces"),
    ]
    assert marked(" a") == [(" ", "space", "1 leading space")]
    assert marked("   ") == [("   ", "space", "3 leading spaces")]
    assert has_deception("caf\u00e9") == [] != has_deception("cafe\u0301")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01",
        "TRUE",
        "Refund 480.00 USD on invoice 4412",
        "Zo\u00eb M\u00fcller, \u0141\u00f3d\u017a",
        "Vi\u1ec7t Nam",
        "\u043e\u043d\u0430 \u0430 \u0441\u043e\u0440",
        "\u03bb\u03cc\u03b3\u03bf\u03c2",
        "\u65e5\u672c\u8a9e\uff08\u6771\u4eac\uff09",
        "\u0939\u093f\u0928\u094d\u0926\u0940",
        "\u0e44\u0e17\u0e22 \u0e17\u0e35\u0e48",
        "\ud55c\uad6d\uc5b4",
        "\u0661\u0662\u0663",
        "\u2764\ufe0f",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "5 \u00b5s, 20 \u00b0C, \u00bd, 2\u00b2, \u20ac10",
        "10\u201320 days",
        "one \u2013 two \u2026 \u201cquoted\u201d",
        "line\nline\r\n\tline",
    ],
)
def test_ordinary_writing_draws_no_warning(text: str) -> None:
    assert has_deception(text) == []
    marked(text)


def test_a_line_break_is_marked_without_a_warning() -> None:
    assert marked("a\nb") == [("\n", "control", "U+000A line feed")]
    assert not tokens("a\nb")[1].is_warning


def test_a_warning_names_a_few_and_counts_the_rest() -> None:
    warnings = has_deception("\u200b\u200c\u200d\u2060\u2061x")
    assert len(warnings) == 1 and warnings[0].endswith("U+200D zero width joiner and 2 more.")


def test_marks_piled_on_a_letter_are_one_piece_with_a_short_label() -> None:
    found = marked("a" + "".join(map(chr, range(0x300, 0x340))) + "b")
    assert len(found) == 1 and found[0][2].endswith("more") and len(found[0][2]) < 200


def test_a_plain_text_is_one_plain_piece() -> None:
    assert tokens("plain text") == [Piece("plain text")]
    assert tokens("") == []


ODD = (
    "ae \u0301\u0323\u200b\u200d\ufe0f\u00a0\u202e\u0430\u0441\u03bf\U000e0041\ud800\n\r\t"
    "\u1112\u1161\u05d0\u0661\u00e9\u2764-\u2011\uff0f/"
)


@given(st.text(st.characters(categories=None)) | st.text(st.sampled_from(ODD)))
def test_every_string_is_cut_into_pieces_that_join_to_it(text: str) -> None:
    pieces = tokens(text)
    assert "".join(piece.text for piece in pieces) == text
    assert all(piece.text and bool(piece.label) is not piece.is_plain for piece in pieces)
    assert not any(one.is_plain and two.is_plain for one, two in pairwise(pieces))
    for warning in has_deception(text):
        warning.encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["a\u0301" * 170_000, "\u0430" * 260_000, "a\u0430\u0431 " * 130_000, "\u0301" * 260_000, "a  " * 170_000]
)
def test_a_hostile_half_megabyte_is_cut_in_linear_time(text: str) -> None:
    started = time.process_time()
    marked(text)
    # About 1 s on an idle machine; the bound only tells linear from quadratic.
    assert time.process_time() - started < 8
