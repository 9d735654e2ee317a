# SPDX-License-Identifier: Apache-2.0
"""What kubectl 1.33 reads: scalars, keys and files, recorded from `kubectl label --local`."""

VALUES = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "true", "TRUE", "!!bool y"), True),
    **dict.fromkeys(("n", "N", "no", "No", "off", "OFF", "false", "False"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL", '!!null ""'), None),
    **dict.fromkeys(("0600", "0o600", "0O600", "0x180", "+384", "384.0", "0b110000000"), 384),
    **dict.fromkeys(("1e3", "1E3", "1e+3", "1.e3", "+1e3", "1_000", "!!float 1e3"), 1000),
    **dict.fromkeys(("0", "+0", "-0", "-0.0", "00", "0_", "0e0", "1e-400", "0."), 0),
    "-0o600": -384, "-0b101": -5, "-0x1f": -31, "08": 8, "0_7": 7, "1__0": 10, "0x_1": 1,
    ".5": 0.5, "-.5": -0.5, "1e-3": 0.001, "1_0.5": 10.5, ".5_0": 0.5, "5.": 5, "1.50": 1.5,
    "9223372036854775807": 2**63 - 1, "9223372036854775808": float(2**63),
    "99999999999999999999": 1e20, "0xFFFFFFFFFFFFFFFF": float(2**64), "1e18": 10**18,
    "123456789012345678.0": 123456789012345680, "-9223372036854775809": -float(2**63),
    '!!int "5"': 5, "!!str 1": "1", "!!str y": "y", "! 1": "1", "!foo 1": "1", "'1'": "1",
    "!!binary aGVsbG8=": "hello", "!!timestamp 2020-01-01": "2020-01-01", "&x 1": 1,
    "!!set {a}": {"a": None}, "[1, ~, ]": [1, None], "{a: , b}": {"a": None, "b": None},
    **{text: text for text in (
        "yEs", "tRue", "nULL", "0o8", "0b2", "0x", "_1", "1-1", "1,000", "1e400", "inf", "12:30",
        "190:20:30", "2020-01-01", "2001-12-14 21:59:43.10 -5", "0x10000000000000000", "=", "<<",
        "1.2.3", "1e", ".e3", "._5", ".5_", "+", ".", "Infinity", "-x", "a:b",
    )},
}  # fmt: skip
"""A value as it stands in a file -> what it is."""
REFUSED = (
    ".inf", "-.Inf", ".nan", "!!int x", "!!int 1e3", "!!null x", '!!binary "!!"', "*x", "@a", "`a",
    "- 1", "{a", "[1", '"a', "a: b: c",
)  # fmt: skip
KEYS = {"y": "true", "n": "false", "0o10": "8", "1_000": "1000", '"1.5"': "1.5", '"<<"': "<<"}
REFUSED_KEYS = ("~", "null", "[a]", "{a: b}", "18446744073709551615")
ONE, TWO = '{"a":1}', '{"a":2}'
FILES = {
    **{
        text: [{"a": 1}, {"a": 2}]
        for text in (
            f"{ONE}{TWO}",
            f"{ONE}\n\n{TWO}\n",
            f"{ONE}\n---\n{TWO}",
            f"{ONE}\n---\na: 2\n",
            f"{ONE} # one\n---\na: 2",
            "a: 1\n---\na: 2",
            "a: 1\n--- # two\na: 2\n",
            "a: 1\r\n---  \r\na: 2\r\n",
            "---\n---\na: 1\n---\n\n---\n# none\n---\na: 2\n---",
            "a: 1\n---\nnull\n---\na: 2\n",
            "a: 1\n...\n---\na: 2\n",
            "\ufeffa: 1\n---\na: 2\n",
            "{a: 1,}\n---\na: 0\na: 2\n",
        )
    },
    "a: 1\n...\na: 2\n": [{"a": 1}],
    f"# none\n{ONE}{TWO}": [{"a": 1}],
    '{"a":NaN}': [{"a": "NaN"}],
    '{"a":1.0,"b":99999999999999999999,"a":2}': [{"a": 2, "b": 1e20}],
    "a: |\n  b": [{"a": "b\n"}],
    "a: |+\n  b\n\n---\na: 2": [{"a": "b\n\n"}, {"a": 2}],
    "a: 1\n---\na: |+\n  b\n\n": [{"a": 1}, {"a": "b\n\n"}],
    "a: >+\r\n  b\r\n": [{"a": "b\n"}],
    f"{ONE}\t\n": [{"a": 1}],
    f"{ONE}\n\t{TWO}\n\t\n": [{"a": 1}, {"a": 2}],
    "a: &x [1]\nb: *x\n": [{"a": [1], "b": [1]}],
    "": [],
    "# none\n": [],
}  # fmt: skip
"""A file -> its documents."""
REFUSED_FILES = (
    "a: 1\n--- {a: 2}\n",
    "a: 1\n----\na: 2\n",
    "a: &x [*x]\n",
    "a:\n\tb: 1\n",
    'a: "\x07"\n',
    "%YAML 1.1\n---\na: 1\n",
    '{"a":1e400}',
    '{"a":1',
)
