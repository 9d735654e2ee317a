# SPDX-License-Identifier: Apache-2.0
"""Arguments as Go programs take them, and what the flags of Muster and its ancestors mean."""

import dataclasses

import pytest

from muster import flags
from muster.flags import Flag
from muster.settings import Settings

TABLE = (
    Flag("namespace", "", "namespace"),
    Flag("leader-elect", "", "leader", flags.boolean, switch=True),
    Flag("period", "", "period", flags.duration),
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
    assert flags.parse_flags(arguments, TABLE).values == values


def test_flags_without_effect_are_named_once():
    """What is accepted only is remembered for the log."""
    given = flags.parse_flags(
        ["-logtostderr", "--qps", "5", "--qps=6", "--zap-devel", "--zap-encoder=json"],
        TABLE,
        prefixes=("zap-",),
    )
    assert given.values == {}
    assert given.ignored == ["--logtostderr", "--qps", "--zap-devel", "--zap-encoder"]


def test_flags_of_a_family_take_their_value_along():
    """The next argument belongs to an unknown flag of a family unless it is a flag itself."""
    given = flags.parse_flags(
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
        (["--leader-elect", "false"], 'unexpected argument "false"; write --leader-elect=false'),
        (["--namespace"], "--namespace needs a value: --namespace=…"),
        (["--namespace", "--leader-elect"], "--namespace needs a value: --namespace=…"),
        (["--leader-elect=maybe"], "--leader-elect=maybe: write true or false"),
        (["--period=soon"], "--period=soon: write a duration like 500ms, 1s or 2m"),
    ],
)
def test_errors_name_the_flag(arguments, message):
    """Whoever made a mistake reads where, and what to write."""
    with pytest.raises(flags.FlagError) as raised:
        flags.parse_flags(arguments, TABLE)
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
    assert flags.duration(text) == pytest.approx(seconds)


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
    assert flags.address(text) == address


@pytest.mark.parametrize(
    ("read", "message", "texts"),
    [
        # A number needs its unit, as in Go; nothing lasts less than no time.
        (flags.duration, "a duration", ("", "1", "1 s", "s", "-1s", "1d", "1s2", "1.2.3s")),
        # A port alone or a URL is refused.
        (flags.address, "host:port", ("8080", "localhost", ":99999", "http://x:80", "::1:80")),
        (flags.address, "host:port", (":80:80",)),
        (flags.count, "", ("-1", "many", "1.5")),
        (flags.positive, "", ("0", "")),
        (flags.one_of("create", "bind"), "", ("Create",)),
    ],
)
def test_invalid_value_is_refused(read, message, texts):
    """The error says what to write."""
    for text in texts:
        with pytest.raises(ValueError, match=f"write {message}"):
            read(text)


def parse(*arguments, **environ):
    """Return the settings that the arguments come to."""
    return flags.parse(arguments, environ)


def backend(*arguments):
    """Return (backend, schedulerName) that the arguments choose."""
    chosen = parse(*arguments).backend
    return chosen.name, chosen.scheduler_name


def test_nothing_given():
    """Without any argument every setting has its documented default."""
    assert parse() == Settings()
    # Running members are deleted on request only.
    assert parse().on_hold_expired == "keep"
    assert backend() == ("embedded", "muster")


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        (["--gang-scheduler-name=embedded"], ("embedded", "muster")),
        (["--gang-scheduler-name="], ("none", "")),
        (["--gang-scheduler-name", "None"], ("none", "")),
        (["--gang-scheduler-name=VOLCANO"], ("volcano", "volcano")),
        (["--gang-scheduler-name=scheduler-plugins"], ("scheduler-plugins", "")),
        (["--gang-scheduling="], ("none", "")),
        (["--gang-scheduling=volcano"], ("volcano", "volcano")),
        (["--gang-scheduling=default-scheduler"], ("scheduler-plugins", "default-scheduler")),
        (
            ["--gang-scheduling=scheduler-plugins-scheduler"],
            ("scheduler-plugins", "scheduler-plugins-scheduler"),
        ),
        (["--enable-gang-scheduling"], ("kube-batch", "kube-batch")),
        (["--enable-gang-scheduling=true"], ("kube-batch", "kube-batch")),
        (["--enable-gang-scheduling=false"], ("none", "")),
        (["--enable-gang-scheduling", "--gang-scheduler-name=volcano"], ("volcano", "volcano")),
        (["--enable-gang-scheduling=true", "--gang-scheduling=volcano"], ("volcano", "volcano")),
        (["--enable-gang-scheduling=false", "--gang-scheduler-name=none"], ("none", "")),
        (["--gang-scheduling=Volcano", "--gang-scheduler-name=volcano"], ("volcano", "volcano")),
        (["--gang-scheduling=", "--gang-scheduler-name=none"], ("none", "")),
        (["--gang-scheduler-name=kubernetes"], ("kubernetes", "")),
    ],
)
def test_gang_flags(arguments, chosen):
    """Three flags of three operators, one meaning, which the documents of each tell users."""
    assert backend(*arguments) == chosen


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("--gang-scheduler-name=volcano", "--gang-scheduling=kube-batch"),
        ("--gang-scheduler-name=scheduler-plugins", "--gang-scheduling=default-scheduler"),
        ("--gang-scheduler-name=volcano", "--enable-gang-scheduling=false"),
        ("--gang-scheduling=volcano", "--enable-gang-scheduling=false"),
        ("--enable-gang-scheduling=true", "--gang-scheduler-name=none"),
    ],
)
def test_gang_flags_that_contradict_each_other(first, second):
    """Two different meanings are an error that names both flags, in any order."""
    for arguments in ((first, second), (second, first)):
        with pytest.raises(flags.FlagError) as raised:
            parse(*arguments)
        assert str(raised.value) == f"{first} and {second} contradict each other; give one of them"


def test_the_pair_that_contradicts_is_named():
    """Of three flags only the two that differ are named."""
    with pytest.raises(flags.FlagError, match="-name=volcano and --enable-gang-scheduling=false"):
        parse(
            "--gang-scheduler-name=volcano",
            "--gang-scheduling=volcano",
            "--enable-gang-scheduling=false",
        )


def test_kube_batch_object():
    """--kube-batch-object reaches the backend."""
    chosen = parse("--enable-gang-scheduling", "--kube-batch-object=pdb").backend
    assert [api.kind for api in chosen.apis] == ["PodDisruptionBudget"]


FIELDS = [
    ("--namespace=team", "namespaces", ("team",)),
    ("--namespace=", "namespaces", ()),
    ("--enable-scheme=tfjob", "kinds", ("TFJob",)),
    ("--enable-scheme=PyTorchJob", "kinds", ("PyTorchJob",)),
    ("--cluster-domain=cluster.local", "cluster_domain", "cluster.local"),
    ("--shared-environment-above=0", "shared_above", 0),
    ("--max-replicas-per-job=500", "max_replicas_per_job", 500),
    ("--max-replicas-per-job=10000", "max_replicas_per_job", 10_000),
    ("--max-job-bytes-per-namespace=1Mi", "max_job_bytes_per_namespace", 2**20),
    ("--max-job-bytes=1000", "max_job_bytes", 1000),
    ("--kubeconfig=/k", "kubeconfig", "/k"),
    ("--kubeConfig=/k", "kubeconfig", "/k"),
    ("--context=prod", "context", "prod"),
    ("--master=https://10.0.0.1", "master", "https://10.0.0.1"),
    ("--metrics-bind-address=:9090", "metrics_bind", ":9090"),
    ("--metrics-bind-address=0", "metrics_bind", "0"),
    ("--listen-address=127.0.0.1:1", "metrics_bind", "127.0.0.1:1"),
    ("--monitoring-port=8443", "metrics_bind", ":8443"),
    ("--monitoring-port=0", "metrics_bind", "0"),
    ("--health-probe-bind-address=:9091", "health_bind", ":9091"),
    ("--leader-elect", "leader_elect", True),
    ("--leader-elect=false", "leader_elect", False),
    ("--leader-election-id=other", "leader_election_id", "other"),
    ("--lock-namespace=kube-system", "lock_namespace", "kube-system"),
    ("--lock-object-namespace=kube-system", "lock_namespace", "kube-system"),
    ("--leader-elect-lease-duration=1m", "lease_duration", 60.0),
    ("--leader-elect-renew-deadline=9s", "renew_deadline", 9.0),
    ("--leader-elect-retry-period=1s", "retry_period", 1.0),
    ("--scheduler-name=batch", "scheduler_names", ("batch",)),
    ("--scheduler-conf=/conf.yaml", "scheduler_conf", "/conf.yaml"),
    ("--schedule-period=500ms", "schedule_period", 0.5),
    ("--default-queue=shared", "default_queue", "shared"),
    ("--priority-class=false", "priority_class", False),
    ("--pending-pods-budget=0", "pending_pods_budget", 0),
    ("--member-hold=30s", "member_hold", 30.0),
    ("--node-lost-after=5m", "node_lost_after", 300.0),
    ("--node-lost-share=0.8", "node_lost_share", 0.8),
    ("--node-lost-share=1", "node_lost_share", 1.0),
    ("--on-hold-expired=release", "on_hold_expired", "release"),
    ("--reservation-after=1m", "reservation_after", 60.0),
    ("--max-member-hold=30m", "max_member_hold", 1800.0),
    ("--max-schedule-timeout=1h", "max_schedule_timeout", 3600.0),
    ("--hide-other-namespaces", "hide_other_namespaces", True),
    ("--dry-run-pods=false", "dry_run_pods", False),
    ("--placement=bind", "placement", "bind"),
    ("--dashboard-bind-address=:8083", "dashboard_bind", ":8083"),
    ("--dashboard-auth=none", "dashboard_auth", "none"),
    ("--concurrency=8", "concurrency", 8),
    ("-v=4", "verbosity", 4),
    ("--v=4", "verbosity", 4),
    ("--zap-log-level=debug", "verbosity", 1),
    ("--zap-log-level=5", "verbosity", 5),
    ("--pytorch-init-container-image=i", "pytorch_init_image", "i"),
    ("--pytorch-init-container-max-tries=5", "pytorch_init_tries", 5),
    ("--pytorch-init-container-template-file=/f", "pytorch_init_template", "/f"),
    ("--mpi-kubectl-delivery-image=i", "mpi_delivery_image", "i"),
    ("--version", "version", True),
]


@pytest.mark.parametrize(("argument", "field", "value"), FIELDS)
def test_flag(argument, field, value):
    """Each flag sets its own field and no other."""
    assert parse(argument) == dataclasses.replace(Settings(), **{field: value})


@pytest.mark.parametrize(
    "argument",
    [
        "--controller-threads=4",
        "--threadiness=2",
        "--kube-api-qps=50",
        "--kube-api-burst=100",
        "--controller-queue-rate-limit=10",
        "--controller-queue-burst=100",
        "--webhook-server-port=9443",
        "--webhook-service-name=training-operator",
        "--webhook-secret-name=cert",
        "--zap-devel",
        "--zap-encoder=json",
        "--zap-stacktrace-level=error",
        "--zap-time-encoding=iso8601",
        "--resyc-period=12h",
        "--json-log-format=false",
        "-logtostderr",
        "-alsologtostderr",
        "--alsologtostderr",
        "-stderrthreshold=INFO",
    ],
)
def test_accepted_without_effect(argument):
    """Flags that mean nothing here are accepted and remembered, and change nothing else."""
    name = "--" + argument.lstrip("-").split("=")[0]
    assert parse(argument) == dataclasses.replace(Settings(), ignored=(name,))


def test_several_values():
    """Namespaces, kinds and scheduler names may be given several times, and count once."""
    read = parse(
        "--namespace=a", "--namespace=b,a", "--enable-scheme=tfjob", "--enable-scheme=TFJOB",
        "--scheduler-name=muster", "--scheduler-name=other",
    )  # fmt: skip
    assert read.namespaces == ("a", "b")
    assert read.kinds == ("TFJob",)
    assert read.scheduler_names == ("muster", "other")


def test_environment():
    """What the ancestors take from the environment, unless a flag says otherwise."""
    environ = {
        "KUBEFLOW_NAMESPACE": "kubeflow",
        "CUSTOM_CLUSTER_DOMAIN": "tf.training.org",
        "POD_NAMESPACE": "muster-system",
    }
    read = parse(**environ)
    assert read.namespaces == ("kubeflow",)
    assert read.cluster_domain == "tf.training.org"
    assert (read.lock_namespace, read.home) == ("muster-system", "muster-system")
    read = parse("--namespace=team", "--cluster-domain=", "--lock-namespace=locks", **environ)
    assert (read.namespaces, read.cluster_domain, read.lock_namespace) == (("team",), "", "locks")
    assert parse("--namespace=", **environ).namespaces == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gang-schedulername=x"], "did you mean --gang-scheduler-name?"),
        (["--alsologtostder"], "did you mean --alsologtostderr?"),
        (["--enable-scheme=mxjob"], "--enable-scheme=mxjob: write one of TFJob, PyTorchJob"),
        (["--namespace=Team_1"], "--namespace=Team_1: write the name of a namespace"),
        (["--schedule-period=1"], "--schedule-period=1: write a duration like"),
        (["--schedule-period=0s"], "--schedule-period=0s: write a duration longer than 0"),
        (["--node-lost-share=55"], "--node-lost-share=55: write a number above 0 and up to 1"),
        (["--node-lost-share=0"], "--node-lost-share=0: write a number above 0 and up to 1"),
        (["--node-lost-share=half"], "--node-lost-share=half: write a number above 0"),
        (["--placement=nail"], "--placement=nail: write one of create, bind"),
        (["--kube-batch-object=x"], "--kube-batch-object=x: write one of auto, podgroup, pdb"),
        (["--zap-log-level=loud"], "--zap-log-level=loud: write one of debug"),
        (["--scheduler-name="], "--scheduler-name=: write a name"),
        (["--max-replicas-per-job=0"], "--max-replicas-per-job=0: write an integer of 1 or more"),
        (["--max-replicas-per-job=10001"], "=10001: write an integer from 1 to 10000"),
        (["--max-job-bytes=0"], "--max-job-bytes=0: write a quantity above 0, such as 64Mi"),
        (["--max-job-bytes=x"], '--max-job-bytes=x: "x" is not a quantity'),
        (["--leader-elect-renew-deadline=20s"], "--leader-elect-lease-duration must be longer"),
        (["--leader-elect-retry-period=10s"], "--leader-elect-retry-period"),
    ],
)
def test_errors(arguments, message):
    """A wrong argument is refused with its flag and what to write."""
    with pytest.raises(flags.FlagError) as raised:
        parse(*arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "10.0.0.1", "[::]", "muster.example"])
def test_a_page_for_everybody_is_for_this_machine_alone(host):
    """Else whoever reaches the port would see all tenants' jobs."""
    with pytest.raises(flags.FlagError, match=r"write an address of this machine .* 127.0.0.1:80"):
        parse(f"--dashboard-bind-address={host}:80", "--dashboard-auth=none")
    assert parse(f"--dashboard-bind-address={host}:80").dashboard_bind == f"{host}:80"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_on_this_machine_everybody_may_look(host):
    """Who is on it can read the operator's token, too."""
    read = parse(f"--dashboard-bind-address={host}:80", "--dashboard-auth=none")
    assert read.dashboard_auth == "none"


def test_the_page_tells_of_the_embedded_scheduler():
    """Of another one nobody here knows what it sees."""
    with pytest.raises(flags.FlagError, match="needs the embedded scheduler"):
        parse("--dashboard-bind-address=:80", "--gang-scheduler-name=volcano")


def test_usage_lists_every_flag():
    """The help names each flag that is accepted, with a text for those that mean something."""
    text = flags.usage()
    for section in flags.SECTIONS.values():
        assert all(flag.text and f"--{flag.name} " in text for flag in section)
    assert all(f"--{flag.name}" in text for flag in flags.WITHOUT_EFFECT)


def test_the_scheduler_alone_has_kube_batchs_defaults():
    """Its names, lease and timings; one address for metrics and health unless two are given."""
    alone = flags.parse([], {"KUBEFLOW_NAMESPACE": "team"}, "scheduler")
    assert (alone.alone, alone.namespaces, alone.leader_elect) == (True, (), False)
    assert alone.scheduler_names == ("kube-batch", "muster")
    assert (alone.leader_election_id, alone.default_queue) == ("kube-batch", "default")
    timings = (alone.lease_duration, alone.renew_deadline, alone.retry_period)
    assert timings == (15.0, 10.0, 5.0)
    assert (alone.metrics_bind, alone.health_bind, alone.schedule_period) == (":8080", ":8080", 1)
    moved = flags.parse(["--listen-address=:9000"], {}, "scheduler")
    assert (moved.metrics_bind, moved.health_bind) == (":9000", ":9000")


def test_the_scheduler_alone_has_no_flags_of_jobs():
    """Nor of other gang schedulers; its help shows none."""
    with pytest.raises(flags.FlagError, match="unknown flag --gang-scheduler-name"):
        flags.parse(["--gang-scheduler-name=volcano"], {}, "scheduler")
    assert "--enable-scheme" not in flags.usage("scheduler")
    assert "--priority-class" in flags.usage("scheduler")
