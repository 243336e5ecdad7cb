"""A text competition with generated hotel reviews.

The target is whether the guest would come again. It depends on the order of the words: "not"
negates the next word, and only the clause after the last "but" counts.
"""

from functools import cache

import numpy as np

from localkaggle.competitions.competition import Competition
from localkaggle.competitions.examples import Examples, split
from localkaggle.competitions.metrics import accuracy

THINGS = (
    *("room", "bed", "breakfast", "staff", "pool", "view", "lobby", "shower", "service"),
    *("price", "garden", "bar"),
)
GOOD = (
    *("lovely", "clean", "friendly", "quiet", "great", "tasty", "bright", "warm", "helpful"),
    "spotless",
)
BAD = ("dirty", "noisy", "rude", "cold", "dark", "stale", "awful", "broken", "cramped", "grim")
OPENINGS = ("We stayed two nights.", "Booked on a whim.", "Here for work.", "A family trip.", "")
COUNT = 2400


@cache
def reviews() -> Competition:
    """Return a competition with 1,700 training, 100 visible test and 600 hidden test texts."""
    random, texts = np.random.RandomState(0), dict[str, bool]()
    while len(texts) < COUNT:  # all texts are unique, so that they cannot be memorized
        texts |= [_written(random)]
    values = ["yes" if again else "no" for again in texts.values()]
    return Examples("again", values, {"text": list(texts)}).competition(
        "reviews",
        "Would You Come Again?",
        split(COUNT, visible=100, hidden=600),
        placeholder="no",
        score=accuracy,
    )


def _written(random: np.random.RandomState) -> tuple[str, bool]:
    """Return a random text, and whether its last clause is positive."""
    clauses, again = [], True
    for _ in range(random.randint(1, 4)):
        again = bool(random.rand() < 0.5)
        negated = random.rand() < 0.4
        words = GOOD if again != negated else BAD
        word, thing = words[random.randint(len(words))], THINGS[random.randint(len(THINGS))]
        verb = "was not" if negated else ("was", "was very", "was really")[random.randint(3)]
        clauses.append(f"the {thing} {verb} {word}")
    opening = OPENINGS[random.randint(len(OPENINGS))]
    text = " but ".join(clauses)
    return f"{opening} {text[0].upper()}{text[1:]}.".strip(), again
