"""Options are declared once: command line, Python and classifiers agree on names and defaults."""

import inspect
import math
from dataclasses import fields

import click
import numpy as np
import pytest

from bigmc import api, cli
from bigmc.errors import BigmcError, DataError
from bigmc.estimators import CLASSIFIERS, MinimaxRiskClassifier, MultiBoostClassifier, SparseClassifier
from bigmc.options.declare import KEY, seconds_of, time_limit_of
from bigmc.options.inference import (
    EvaluateKeywords,
    EvaluateOptions,
    PredictKeywords,
    PredictOptions,
    ReportKeywords,
    ReportOptions,
)
from bigmc.options.ingest import IngestKeywords, IngestOptions, given_options
from bigmc.options.learners import OPTIONS, learner_options
from bigmc.options.path import PathKeywords, PathOptions

HOW = {"self", "memory_limit", "engine"}


def command_of(name: str) -> click.Command:
    return cli.app.get_command(click.Context(cli.app), name)


@pytest.mark.parametrize("learner", OPTIONS)
def test_options_are_those_of_the_classifier(learner):
    signature = inspect.signature(CLASSIFIERS[learner].__init__)
    declared = {item.name: item.default for item in fields(OPTIONS[learner])}
    assert declared == {n: p.default for n, p in signature.parameters.items() if n not in HOW}
    assert OPTIONS[learner]().parameters() == declared


@pytest.mark.parametrize("learner", OPTIONS)
def test_the_command_has_every_declared_option_with_its_default(learner):
    command = command_of("train").commands[learner]
    params = {param.name: param for param in command.params}
    for item in fields(OPTIONS[learner]):
        if KEY in item.metadata:
            assert params[item.name].default == item.default
            assert params[item.name].help == item.metadata[KEY].help
        else:
            assert item.name not in params


def test_unknown_options_are_refused():
    with pytest.raises(BigmcError, match=r"training sparse has no option 'alfa'; did you mean alpha\?"):
        learner_options("sparse", {"alfa": 1.0})
    with pytest.raises(BigmcError, match="mrc has no option 'x'; the options are deterministic, eps1"):
        learner_options("mrc", {"x": 1.0})
    with pytest.raises(BigmcError, match="no learner is called 'sprase'"):
        learner_options("sprase", {})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: api.train("boost", "d", "m", max_deepth=2), "boost has no option 'max_deepth'; max_depth"),
        (lambda: api.train("boost", "d", "m", calibrat=0.1), "boost has no option 'calibrat'; calibrate"),
        (lambda: api.sparse_path("d", "p", alpha=[1.0]), "a path has no option 'alpha'; alphas"),
        (lambda: api.fit("d", "m", time_limt="5m"), "fit has no option 'time_limt'; time_limit"),
        (lambda: api.ingest("d", "m", appendd=True), "ingest has no option 'appendd'; append"),
        (lambda: api.predict("m", "d", "p", score=True), "predict has no option 'score'; scores"),
        (lambda: api.evaluate("m", "d", perclass=True), "evaluate has no option 'perclass'; per_class"),
        (lambda: api.report("m", "r", data="d"), "a report has no option 'data'; dataset"),
    ],
)
def test_python_names_the_option_that_was_meant(call, message):
    wrong, meant = message.split("; ")
    with pytest.raises(DataError, match=rf"{wrong}; did you mean {meant}\?"):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: api.train("boost", "d", "m", time="5m"), "no option 'time'; in Python it is time_limit"),
        (lambda: api.predict("m", "d", "p", scores="no"), "scores is 'no'; give a bool"),
        (lambda: api.evaluate("m", "d", confusion=1), "confusion is 1; give a bool"),
        (lambda: api.sparse_path("d", "p", n_alphas="9"), "n_alphas is '9'; give a whole number"),
        (lambda: api.report("m", "r", top=2.5), "top is 2.5; give a whole number"),
    ],
)
def test_python_refuses_options_of_other_types(call, message):
    with pytest.raises(DataError, match=message):
        call()


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (SparseClassifier(tol="small"), "tol is 'small'; give a number"),
        (SparseClassifier(fit_intercept="no"), "fit_intercept is 'no'; give a bool"),
        (SparseClassifier(class_weight=2), 'class_weight 2 is unknown; use "balanced" or a dict'),
        (SparseClassifier(penalty=[]), r"penalty is \[\]; give a text"),
        (MultiBoostClassifier(tol=None), "tol is None; give a number"),
        (MinimaxRiskClassifier(fourier=None), "fourier is None; give a whole number"),
    ],
)
def test_estimators_refuse_parameters_of_other_types(estimator, message):
    with pytest.raises(DataError, match=message):
        estimator.fit(np.eye(4), [0, 1, 0, 1])


def test_numbers_and_bools_of_numpy_are_taken():
    options = {"alpha": np.float32(0.1), "max_passes": np.int64(3), "fit_intercept": np.True_}
    SparseClassifier(**options).check_params()


def test_values_of_other_types_are_refused():
    for given, reason in (
        ({"weight": [1.0, 2.0]}, "weight is .1.0, 2.0.; give the name of a column"),
        ({"hash_bits": "18"}, "hash_bits is '18'; give a whole number"),
        ({"gamma": True}, "gamma is True; give a number"),
        ({"standardize": "no"}, "standardize is 'no'; give a bool"),
        ({"dense": [1.5]}, "1.5 is no name of a column"),
    ):
        with pytest.raises(DataError, match=reason):
            given_options(given)
    assert given_options({"label": 4, "dense": (0, "b")}) == {"label": "4", "dense": ("0", "b")}
    for time in (-1, float("nan"), "5 days", [1]):
        with pytest.raises(DataError, match=r"time_limit is .*; give seconds, or a text like 90s"):
            time_limit_of(time)
    assert [time_limit_of(time) for time in (None, 2, "5m")] == [math.inf, 2.0, 300.0]


@pytest.mark.parametrize(
    ("keywords", "options", "apart"),
    [
        (IngestKeywords, IngestOptions, set()),
        (PredictKeywords, PredictOptions, set()),
        (EvaluateKeywords, EvaluateOptions, {"label"}),  # which may also be the labels of an array
        (ReportKeywords, ReportOptions, set()),
        (PathKeywords, PathOptions, set()),
    ],
)
def test_python_takes_the_options_that_are_declared(keywords, options, apart):
    assert keywords.__annotations__.keys() | apart == {item.name for item in fields(options)}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ingest", IngestOptions),
        ("predict", PredictOptions),
        ("evaluate", EvaluateOptions),
        ("report", ReportOptions),
        ("path", PathOptions),
    ],
)
def test_commands_have_the_options_that_are_declared(name, options):
    params = {param.name: param for param in command_of(name).params}
    for item in fields(options):
        if KEY not in item.metadata:
            continue
        option, help = item.metadata[KEY], params[item.name].help
        assert help.partition("  [default: ")[0] == option.help
        assert option.shown is None or help.endswith(f"  [default: {option.shown}]")


def test_an_ingest_knows_which_options_were_given():
    given = given_options({"text": "t", "seed": 0, "keep": ["a", "b"], "group": None})
    assert given == {"text": ("t",), "seed": 0, "keep": ("a", "b")}
    assert IngestOptions(seed=3, ngrams=(2, 2)).but(given) == IngestOptions(
        text=("t",), seed=0, keep=("a", "b"), ngrams=(2, 2)
    )


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("txt", r"did you mean text\?"),
        ("memory", "in Python it is memory_limit"),
        ("x", "the options are analyzer, "),
    ],
)
def test_an_unknown_option_of_an_ingest_is_refused_with_what_was_meant(name, cure):
    with pytest.raises(BigmcError, match=f"ingest has no option '{name}'; {cure}"):
        given_options({name: "t"})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"on_bad_row": "skip"}, "on_bad_row is 'skip'; choose fail or quarantine"),
        ({"missing": "drop"}, "missing is 'drop'; choose refuse, keep or fill"),
    ],
)
def test_options_are_checked_where_they_are_made(wrong, message):
    with pytest.raises(BigmcError, match=message):
        IngestOptions(**wrong)


def test_options_do_not_change():
    options = learner_options("sparse", {"alpha": 0.1})
    with pytest.raises(AttributeError):
        options.alpha = 0.2


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("5m", 300), (" 2 h ", 7200)])
def test_times_are_given_with_their_unit(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5x", "-1", "1e3", "m", "nan"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="is not a time; write it like 90s"):
        seconds_of(text)


@pytest.mark.parametrize("flag", ["--time", "--time-limit"])
@pytest.mark.parametrize("command", [["fit"], ["train", "boost"], ["train", "mrc"]])
def test_every_command_takes_times_alike(command, flag):
    context = click.Context(cli.app)
    for name in command:
        context = click.Context(context.command.get_command(context, name), parent=context)
    [given] = [p for p in context.command.params if flag in p.opts]
    assert given.type.convert("5m", given, context) == 300
