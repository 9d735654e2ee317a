# SPDX-License-Identifier: Apache-2.0
"""Arguments as Go programs take them."""

import pytest

from muster.runtime import settings
from muster.runtime.settings import Flag

TABLE = (
    Flag("namespace", "", "namespace"),
    Flag("leader-elect", "", "leader", settings.boolean, switch=True),
    Flag("period", "", "period", settings.duration),
    Flag("kind", "", "kinds", many=True),
    Flag("qps"),
    Flag("logtostderr", switch=True),
)


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ([], {}),
        (["--namespace=team"], {"namespace": "team"}),
        (["-namespace=team"], {"namespace": "team"}),
        (["--namespace", "team"], {"namespace": "team"}),
        (["-namespace", "team"], {"namespace": "team"}),
        (["--namespace="], {"namespace": ""}),
        (["--namespace", ""], {"namespace": ""}),
        (["--namespace=a=b"], {"namespace": "a=b"}),
        (["--namespace", "-odd"], {"namespace": "-odd"}),
        (["--namespace=a", "--namespace=b"], {"namespace": "b"}),
        (["--leader-elect"], {"leader": True}),
        (["-leader-elect=false"], {"leader": False}),
        (["--leader-elect=1", "--period", "1m"], {"leader": True, "period": 60.0}),
        (["--kind=a", "--kind", "b"], {"kinds": ("a", "b")}),
    ],
)
def test_values(arguments, values):
    """Both dashes, both ways to give a value, switches; the last of two counts."""
    assert settings.parse_flags(arguments, TABLE).values == values


def test_flags_without_effect_are_named_once():
    """What is accepted only is remembered for the log."""
    given = settings.parse_flags(
        ["-logtostderr", "--qps", "5", "--qps=6", "--zap-devel", "--zap-encoder=json"],
        TABLE,
        prefixes=("zap-",),
    )
    assert given.values == {}
    assert given.ignored == ["--logtostderr", "--qps", "--zap-devel", "--zap-encoder"]


def test_flags_of_a_family_take_their_value_along():
    """The next argument belongs to an unknown flag of a family unless it is a flag itself."""
    given = settings.parse_flags(
        ["--zap-encoder", "json", "--zap-devel", "--leader-elect"], TABLE, prefixes=("zap-",)
    )
    assert given.values == {"leader": True}
    assert given.ignored == ["--zap-encoder", "--zap-devel"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--namespac=x"], "unknown flag --namespac; did you mean --namespace?"),
        (["--LEADER-ELECT"], "unknown flag --LEADER-ELECT; did you mean --leader-elect?"),
        (["--xyzzy"], "unknown flag --xyzzy; see --help"),
        (["team"], 'unexpected argument "team"'),
        (
            ["--leader-elect", "false"],
            'unexpected argument "false"; write --leader-elect=false',
        ),
        (["--namespace"], "--namespace needs a value: --namespace=…"),
        (["--namespace", "--leader-elect"], "--namespace needs a value: --namespace=…"),
        (["--leader-elect=maybe"], "--leader-elect=maybe: write true or false"),
        (["--period=soon"], "--period=soon: write a duration like 500ms, 1s or 2m"),
    ],
)
def test_errors_name_the_flag(arguments, message):
    """Whoever made a mistake reads where, and what to write."""
    with pytest.raises(settings.FlagError) as raised:
        settings.parse_flags(arguments, TABLE)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("2m", 120.0),
        ("500ms", 0.5),
        ("1h30m", 5400.0),
        ("1m0.5s", 60.5),
        (".5s", 0.5),
        ("250us", 0.00025),
        ("0", 0.0),
        ("0s", 0.0),
    ],
)
def test_duration(text, seconds):
    """Go's spelling of durations, in seconds."""
    assert settings.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "1 s", "s", "-1s", "1d", "1s2", "1.2.3s"])
def test_no_duration(text):
    """A number needs its unit, as in Go; nothing lasts less than no time."""
    with pytest.raises(ValueError, match="write a duration like"):
        settings.duration(text)


def test_a_period_is_longer_than_nothing():
    """A pace of 0 would be none."""
    with pytest.raises(ValueError, match="longer than 0"):
        settings.span("0s")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", ":8080"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("[::1]:80", "[::1]:80"),
        ("0", "0"),
        ("", "0"),
    ],
)
def test_address(text, address):
    """Where to listen; 0 or nothing is nowhere."""
    assert settings.address(text) == address


@pytest.mark.parametrize(
    "text", ["8080", "localhost", ":99999", "http://x:80", ":80:80", "::1:80"]
)
def test_no_address(text):
    """A port alone or a URL is refused."""
    with pytest.raises(ValueError, match="write host:port"):
        settings.address(text)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (settings.count, "-1"),
        (settings.count, "many"),
        (settings.count, "1.5"),
        (settings.positive, "0"),
        (settings.positive, ""),
        (settings.one_of("create", "bind"), "Create"),
    ],
)
def test_numbers_and_words(read, text):
    """Counts are integers, closed sets are closed."""
    with pytest.raises(ValueError, match="write"):
        read(text)
