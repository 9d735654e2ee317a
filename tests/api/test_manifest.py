# SPDX-License-Identifier: Apache-2.0
"""YAML and JSON are read as kubectl reads them."""

import codecs
import json

import pytest

from muster.api import manifest
from muster.api.manifest import MAX_DEPTH, MAX_NODES, ManifestError
from support.builders.readings import FILES, KEYS, REFUSED, REFUSED_FILES, REFUSED_KEYS, VALUES


def same(found, wanted):
    """Return whether two values are equal and of the same types."""
    return json.dumps(found) == json.dumps(wanted)


@pytest.mark.parametrize("written", VALUES)
def test_scalar_is_read_as_kubectl_reads_it(written):
    """Numbers, words and strings, with and without a tag."""
    assert same(manifest.document(f"v: {written}\n"), {"v": VALUES[written]})


@pytest.mark.parametrize("written", REFUSED)
def test_value_that_kubectl_refuses_is_refused(written):
    """The message names the line."""
    with pytest.raises(ManifestError, match=r"line \d"):
        manifest.document(f"a: 1\nv: {written}\n")


@pytest.mark.parametrize("written", KEYS)
def test_key_is_read_as_kubectl_reads_it(written):
    """Every key becomes a string."""
    assert manifest.document(f"{written}: v\n") == {KEYS[written]: "v"}


@pytest.mark.parametrize("written", REFUSED_KEYS)
def test_key_that_kubectl_refuses_is_refused(written):
    """Null, lists, objects and numbers beyond 64 bits."""
    with pytest.raises(ManifestError, match="cannot be a key"):
        manifest.document(f"? {written}\n: v\n")


@pytest.mark.parametrize("written", ["1.5", "1e3", ".inf", ".NaN", "0.0"])
def test_key_that_is_a_fraction_is_refused(written):
    """Kubectl writes such a key as a number of 32 bits, which is another key."""
    with pytest.raises(ManifestError, match="cannot be a key"):
        manifest.document(f"{written}: v\n")


@pytest.mark.parametrize("text", FILES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"])
def test_file_is_split_as_kubectl_splits_it(text, encoding):
    """JSON objects in a row, YAML documents, and both, in every encoding with its mark."""
    mark = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}.get(encoding, b"")
    written = text.removeprefix("\ufeff") if encoding != "utf-8" else text
    assert same(list(manifest.documents(mark + written.encode(encoding))), FILES[text])


@pytest.mark.parametrize("text", REFUSED_FILES)
def test_file_that_kubectl_refuses_is_refused(text):
    """A broken document, or a line that begins with three dashes and is no separator."""
    with pytest.raises(ManifestError):
        list(manifest.documents(text))


def test_error_names_the_line_of_the_file():
    """Documents and JSON objects before the broken one count."""
    with pytest.raises(ManifestError, match=r"^line 5, column 4: "):
        list(manifest.documents('{"a":\n1}\n---\na: 1\nb: @\n'))


def test_bytes_that_are_no_text_are_replaced():
    """As kubectl does; a lone surrogate, of which no text can be made, is refused."""
    assert manifest.document("a: é".encode("latin-1")) == {"a": "\ufffd"}
    assert manifest.document(r'{"a":"\ud83d\ude00"}') == {"a": "\U0001f600"}
    with pytest.raises(ManifestError, match="ud800 is no character"):
        manifest.document(r'{"a":"\ud800"}')


@pytest.mark.parametrize("text", ["<<: {a: 1}", "b: &b {a: 1}\nc:\n  <<: *b\n", "!!merge <<: {}"])
def test_merge_key_is_refused(text):
    """Merge keys multiply the size of a document; a quoted << is a key like others."""
    with pytest.raises(ManifestError, match="merge keys"):
        manifest.document(text)


def nested(depth):
    """Return lists in each other."""
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("about", ["{}", '{{"a": {}}}', "a: &x {}"])
def test_depth_is_bounded(about):
    """Objects and lists count, in YAML and in JSON."""
    around = about != "{}"
    assert manifest.document(about.format(nested(MAX_DEPTH - around)))
    for depth in (MAX_DEPTH + 1 - around, 50_000):
        with pytest.raises(ManifestError, match="nested deeper than 64 levels"):
            manifest.document(about.format(nested(depth)))


@pytest.mark.parametrize("row", ["[{}]", '{{"a": [{}]}}'])
def test_size_is_bounded(row):
    """In YAML and in JSON."""
    extra = row.count("[") + row.count("{{")
    most = ",".join(["1"] * (MAX_NODES - extra))
    assert manifest.document(row.format(most))
    with pytest.raises(ManifestError, match="more than 100,000 values"):
        manifest.document(row.format(f"{most},1"))


def test_aliases_count_as_what_they_refer_to():
    """In depth and in size: a few lines that stand for 9^12 values are refused at once."""
    rows = ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 65))]
    assert manifest.document("\n".join(rows[:60]))
    with pytest.raises(ManifestError, match="nested deeper"):
        manifest.document("\n".join(rows))
    rows = ["a0: &a0 [x]"]
    rows += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 13)]
    with pytest.raises(ManifestError, match="more than 100,000 values"):
        manifest.document("\n".join(rows))
    wide = f"a: &a [{','.join('x' * 9_000)}]\nb: &b [{','.join(['*a'] * 9_000)}]\nc: [*b, *b]\n"
    with pytest.raises(ManifestError, match="more than 100,000 values"):
        manifest.document(wide)


def test_numbers_of_thousands_of_digits_cost_nothing():
    """Whole numbers beyond 64 bits are read as floats, hexadecimal ones as strings."""
    assert manifest.document("9" * 300) == float("9" * 300)
    assert manifest.document("9" * 5000) == "9" * 5000
    assert manifest.document("0x" + "f" * 5000) == "0x" + "f" * 5000
    with pytest.raises(ManifestError):
        manifest.document('{"a": ' + "9" * 5000 + "}")
