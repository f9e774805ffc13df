"""Print results as text or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from bigmc.budget import format_bytes
from bigmc.cli.arguments import Shown
from bigmc.printable import finite, listed, printable, printable_json


def show(result: Mapping[str, object], asked: Shown, beside: str | None = None) -> None:
    """Write a result to stdout: one line of JSON, or one line per figure.

    If the command wrote its file, `beside`, to standard output, the result goes to stderr.
    """
    from bigmc.api.resolve import writes_to_stdout  # which ``--help`` need not wait for

    stream = sys.stderr if beside is not None and writes_to_stdout(beside) else sys.stdout
    if asked.as_json:
        text = json.dumps(finite(result), ensure_ascii=False, allow_nan=False)
        print(printable_json(text), file=stream)
        return
    for line in _lines(result, indent=0):
        print(line, file=stream)


def show_features(result: Mapping[str, Any]) -> None:
    """Write the strongest features of each class: weight, word, count, and colliding words.

    Hashing gives a word a sign; the weight shown is that of the word itself.
    """
    print(f"{result['n_nonzero_features']:,} of {result['n_features']:,} features have weight")
    for entry in result["classes"]:
        print(f"\n{_word(entry['label'])}")
        for feature in entry["features"]:
            names = feature["names"]
            if not names:
                print(f"  {feature['weight']:+9.4f}  feature {feature['index']}")
                continue
            first, *others = names
            count = "" if first["count"] is None else f"  ({first['count']:,})"
            also = f"  also {', '.join(repr(o['name']) for o in others)}" if others else ""
            weight = feature["weight"] * first["sign"]
            print(f"  {weight:+9.4f}  {_word(first['name'])}{count}{also}")


def show_explanation(result: Mapping[str, Any]) -> None:
    """Write what each word of a sample adds to the score of each class."""
    for number, entry in enumerate(result["classes"]):
        known = f"  probability {entry['probability']:.3f}" if "probability" in entry else ""
        blank = "" if number == 0 else "\n"
        print(f"{blank}{_word(entry['label'])}  score {entry['score']:+.4f}{known}")
        for contribution in entry["words"]:
            print(f"  {contribution['value']:+9.4f}  {_word(contribution['word'])}")


def show_path(result: Mapping[str, Any]) -> None:
    """Write the table of a regularisation path, with the chosen model marked."""
    print(f"  {'alpha':>10}  {'features':>9}  {'accuracy':>8}  {'macro F1':>8}  {'gap':>8}  {'passes':>6}")
    for row in result["table"]:
        mark = "*" if row["alpha"] == result["best"]["alpha"] else " "
        print(
            f"{mark} {row['alpha']:>10.3g}  {row['n_nonzero_features']:>9,}  {row['accuracy']:>8.4f}  "
            f"{row['macro_f1']:>8.4f}  {row['gap']:>8.1e}  {row['n_passes']:>6.3g}"
        )
    print(f"the chosen model is {_word(result['best_model'])}")


_MOST_NAMES = 12
_COLUMN_KINDS = {
    "text": "texts",
    "categorical": "categories, hashed",
    "one_hot": "categories",
    "numeric": "numbers, hashed",
    "dense": "numbers",
    "dates": "dates, as day, month, weekday and hour",
    "filled": "missing numbers are filled with the mean in",
    "left_out": "left out (lists, objects, bytes, times of day, row numbers, ids, or no values)",
}


def show_fit(result: Mapping[str, Any]) -> None:
    """Write the trials of a search, the best settings, and their quality compared with simple models."""
    _show_columns(result)
    _show_trials(result)
    _show_test(result)
    print(_certified(result))
    print(
        f"{_word(result['model'])}: {result['n_nonzero_features']:,} features, "
        f"{result['n_classes']:,} classes, in {result['seconds']:.1f} s"
    )
    if result["n_quarantined"]:
        rows = "row was" if result["n_quarantined"] == 1 else "rows were"
        print(f"{result['n_quarantined']:,} invalid {rows} set aside; the dataset's rejects.parquet says why")
    if "report" in result:
        print(f"report: {_word(result['report'])}")


def _show_columns(result: Mapping[str, Any]) -> None:
    """Write what the columns became, and notes on them."""
    for kind, names in result["columns"].items():
        if kind not in ("text", "numeric") or len(result["columns"]) > 1:
            print(f"{_COLUMN_KINDS[kind]}: {_word(listed(names, _MOST_NAMES))}")
    written = [f"{name} like {' and '.join(some)}" for name, some in result.get("value_formats", {}).items()]
    if written:
        print(f"read as {_word(listed(written, _MOST_NAMES))}")
    for note in result.get("notes", ()):
        print(f"note: {_word(note)}")


def _show_trials(result: Mapping[str, Any]) -> None:
    """Write the trials, and the quality of fewer features and of other learners."""
    print(f"  {'quality':>8}  {'log loss':>8}  {'features':>9}  {'seconds':>7}  settings")
    for trial in result["trials"]:
        mark = "*" if trial["settings"] == result["settings"] else " "
        print(
            f"{mark} {trial['quality']:>8.4f}  {trial['log_loss']:>8.4f}  {trial['n_nonzero_features']:>9,}  "
            f"{trial['seconds']:>7.2f}  {trial['settings']}"
        )
    print(
        f"quality on {result['n_held_out']:,} held-out of {result['n_search_rows']:,} rows; {result['ended']}"
    )
    if result["sizes"]:
        curve = ", ".join(f"{size['n_features']:,}: {size['quality']:.4f}" for size in result["sizes"])
        print(f"quality by number of features: {curve}")
    for learner, quality in result.get("rivals", {}).items():
        print(f"  {quality:>8.4f}  {learner}{' *' if learner == result['learner'] else ''}")
    if result.get("rivals"):
        print(f"settings: {result['settings']}")


def _show_test(result: Mapping[str, Any]) -> None:
    """Write the quality on the test split, and that of simple models."""
    test = result["test"]
    if test is None:
        print("there is no test split, so the model is not evaluated")
        return
    low, high = test["interval"]
    print(
        f"\n{test['by'].replace('_', ' ')} {test[test['by']]:.4f} on {test['n_samples']:,} test rows "
        f"(95 % interval {low:.4f} to {high:.4f})"
    )
    names = {"plain_ridge": "a plain ridge model", "largest_class": "always the largest class"}
    for name, share in result["baselines"].items():
        print(f"  {names[name]}: {share:.4f}")


_UNCERTIFIED = {
    "boost": "no bound is known of how much better other trees could be",
    "sum": "a sum of models has no bound of its optimum; --report shows those of its parts",
}


def _certified(result: Mapping[str, Any]) -> str:
    """Return what is proved about the model of a fit; if nothing is, why, and what helps."""
    gap = result["certificate"].get("gap")
    if gap is not None and gap < 1.0:
        return f"certified: the training objective is within {gap:.1e} of its optimum"
    more = "more --time, with --overwrite," if "time_limit" in result else "bigmc train sparse --max-passes"
    early = f"training ended before it had a useful bound of its optimum; {more} may give one"
    return f"nothing is certified: {_UNCERTIFIED.get(result['learner'], early)}"


def _lines(value: Mapping[str, object], indent: int) -> list[str]:
    width = max((len(_word(key)) for key in value), default=0)
    lines: list[str] = []
    for key, item in value.items():
        pad = " " * indent
        if isinstance(item, Mapping) and item:
            lines += [f"{pad}{_word(key)}", *_lines(item, indent + 2)]
        elif isinstance(item, list) and item and isinstance(item[0], Mapping):
            lines += [f"{pad}{_word(key)}", *(f"{pad}  {_row(entry)}" for entry in item)]
        else:
            lines.append(f"{pad}{_word(key):<{width}}  {_value(str(key), item)}")
    return lines


def _row(entry: Mapping[str, object]) -> str:
    return "  ".join(f"{_word(key)} {_value(str(key), item)}" for key, item in entry.items())


def _value(name: str, item: object) -> str:
    if isinstance(item, bool) or item is None:
        return {True: "yes", False: "no", None: "-"}[item]
    if isinstance(item, int):
        return f"{item:,}" + (f" ({format_bytes(item)})" if "bytes" in name and item > 999 else "")
    if isinstance(item, float):
        return f"{item:.6g}"
    if isinstance(item, list):
        return ", ".join(_value(name, part) for part in item) or "none"
    return _word(item)


def _word(item: object) -> str:
    """Return a text from the user's data, such as a label, on one line and safe for a terminal."""
    return printable(str(item)).replace("\n", "\\n")
