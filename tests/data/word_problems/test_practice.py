from __future__ import annotations

import random
import re

from beltrami.data.word_problems import practice_text


def test_sums_are_right_and_nothing_is_asked() -> None:
    draws = random.Random(0)
    texts = [practice_text(draws, largest=50) for _ in range(300)]
    for text in texts:
        assert "?" not in text
        assert "####" not in text
        for a, sign, b, result in re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", text):
            whole = {
                "+": int(a) + int(b),
                "-": int(a) - int(b),
                "*": int(a) * int(b),
                "/": int(a) / int(b),
            }[sign]
            assert whole == int(result) <= 50
    stories = [text for text in texts if "has" in text]
    assert 100 < len(stories) < 250  # both kinds are there
    assert {text.count(" = ") for text in stories} == {2}  # two of one event, or one of two
    assert all(text.count(" = ") == 9 for text in texts if "has" not in text)
