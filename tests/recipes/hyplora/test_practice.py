from __future__ import annotations

import random
import re

from beltrami.recipes.hyplora.practice import practice_text


def test_sums_are_right_and_no_question_is_answered() -> None:
    draws = random.Random(0)
    texts = [practice_text(draws, largest=50) for _ in range(400)]
    for text in texts:
        for a, sign, b, result in re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", text):
            whole = {
                "+": int(a) + int(b),
                "-": int(a) - int(b),
                "*": int(a) * int(b),
                "/": int(a) / int(b),
            }[sign]
            assert whole == int(result) <= 50
        page, _, body = text.partition("\n")
        assert re.fullmatch(r"#### \d+", page)
        assert "#" not in body
        if "?" in body:
            assert body.endswith("now?\n")
            assert "=" not in body
    sums = {text.count(" = ") for text in texts if "?" not in text}
    assert sums == {8, 2}  # a page of sums, or two stories of one event, or one of two
    assert 40 < sum("?" in text for text in texts) < 120
