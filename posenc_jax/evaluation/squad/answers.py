"""From the spans that a model finds likely in each window to one answer a question (convbert_and_electra.md 5)."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from posenc_jax.data.spans import Passage, Window
from posenc_jax.model.span_heads import Beams
from posenc_jax.objectives.spans import HeadName

BEST = 20
"""Answers kept of a question."""
MAX_ANSWER = 30
"""Tokens of the longest answer."""
THRESHOLDS: dict[HeadName, float] = {"joint": -2.75, "plain": 0.0}
"""Odds of no answer above which nothing is answered: ELECTRA's fixed value for its classifier; BERT's default for the
difference between the null score and the best span's."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A text out of the passage, and the scores of its two ends: log-probabilities (joint) or logits (plain)."""

    text: str
    start_score: float
    end_score: float

    @property
    def score(self) -> float:
        return self.start_score + self.end_score


@dataclasses.dataclass(frozen=True)
class Answered:
    """What was found for one question."""

    best: list[Found]
    """At most `BEST`, best first, no text twice; empty where no span is allowed."""
    null_odds: float
    """How much speaks for no answer; to be compared with a threshold."""

    @property
    def text(self) -> str:
        return self.best[0].text if self.best else ""


def choose_answers(
    windows: Sequence[Window], beams: Sequence[Beams], passages: Sequence[Passage], head: HeadName
) -> list[Answered]:
    """One answer for each of `passages`, the passages of the questions in file order.

    `beams`: of each window, its rows without the batch axis. A span counts where it starts and ends in the passage, is
    at most 30 tokens long, and starts at a token that no other window shows with more context. `null_odds` is the least
    null score of the question's windows, for the plain head minus the score of the best span.
    """
    of_question: list[list[int]] = [[] for _ in passages]
    for number, window in enumerate(windows):
        of_question[window.question].append(number)
    answers = []
    for passage, numbers in zip(passages, of_question, strict=True):
        best = _best([(windows[number], beams[number]) for number in numbers], passage)
        null = min(float(beams[number].null_B) for number in numbers)
        answers.append(Answered(best, null - (best[0].score if best and head == "plain" else 0.0)))
    return answers


def _best(pairs: Sequence[tuple[Window, Beams]], passage: Passage) -> list[Found]:
    spans = [_spans(window, beam) for window, beam in pairs]
    first_S, last_S, start_score_S, end_score_S = (np.concatenate(column) for column in zip(*spans, strict=True))
    best: dict[str, Found] = {}
    for place in np.argsort(-(start_score_S + end_score_S), kind="stable"):
        text = passage.cut(first_S[place], last_S[place])
        if text and text not in best:
            best[text] = Found(text, float(start_score_S[place]), float(end_score_S[place]))
            if len(best) == BEST:
                break
    return list(best.values())


def _spans(window: Window, beam: Beams) -> tuple[np.ndarray, ...]:
    """First and last token in the passage, and both scores, of every span that counts."""
    start_KxK = np.broadcast_to(beam.start_BxK[:, None], beam.end_BxKxK.shape) - window.first_slot
    end_KxK = beam.end_BxKxK - window.first_slot
    counts_KxK = (start_KxK >= 0) & (end_KxK < window.tokens) & (start_KxK <= end_KxK)
    counts_KxK &= end_KxK - start_KxK < MAX_ANSWER
    start_S, end_S = start_KxK[counts_KxK], end_KxK[counts_KxK]
    start_score_S = np.broadcast_to(beam.start_score_BxK[:, None], counts_KxK.shape)[counts_KxK]
    end_score_S = beam.end_score_BxKxK[counts_KxK]
    owned_S = window.owned[start_S]
    spans = start_S + window.first_token, end_S + window.first_token, start_score_S, end_score_S
    return tuple(column_S[owned_S] for column_S in spans)


def nbest(answer: Answered) -> list[dict[str, float | str]]:
    """As in the published nbest files; probabilities are those among the answers kept."""
    if not answer.best:
        return [{"text": "", "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}]
    score_S = np.array([found.score for found in answer.best])
    share_S = np.exp(score_S - score_S.max())
    return [
        {"text": found.text, "probability": share, "start_logit": found.start_score, "end_logit": found.end_score}
        for found, share in zip(answer.best, (share_S / share_S.sum()).tolist(), strict=True)
    ]
