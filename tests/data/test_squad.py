"""SQuAD files are read whole or refused by file and question."""

import copy
import json

import pytest

from posenc_jax.data.squad import Answer, read_squad
from posenc_jax.errors import UserError

CONTEXT = "The river Eider runs north. It is 188 km long."
FILE = {
    "version": "1.1",
    "data": [
        {
            "title": "Eider",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {"id": "q1", "question": "Which river?", "answers": [{"text": "Eider", "answer_start": 10}]},
                        {
                            "id": "q2",
                            "question": "How long?",
                            "answers": [
                                {"text": "188 km", "answer_start": 34},
                                {"text": "188", "answer_start": 34},
                            ],
                        },
                    ],
                }
            ],
        }
    ],
}


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "squad.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


def questions(content):
    return content["data"][0]["paragraphs"][0]["qas"]


def test_questions_contexts_and_all_answers_are_read(write):
    squad = read_squad(write(FILE))
    assert [question.id for question in squad.questions] == ["q1", "q2"]
    first, second = squad.questions
    assert (first.text, first.context, first.answers) == ("Which river?", CONTEXT, (Answer("Eider", 10),))
    assert [CONTEXT[answer.start :].startswith(answer.text) for answer in second.answers] == [True, True]
    assert not first.impossible and squad.version == "1.1" and squad.misplaced == ()


def test_a_file_whose_questions_may_be_impossible_is_version_2(write):
    content = copy.deepcopy(FILE)
    questions(content)[0] |= {"answers": [], "is_impossible": True, "plausible_answers": [{"text": "Eider"}]}
    questions(content)[1]["is_impossible"] = False
    squad = read_squad(write(content))
    assert squad.version == "2.0"
    assert [question.impossible for question in squad.questions] == [True, False]


@pytest.mark.parametrize("start", [9, 11, -1, 400])
def test_an_answer_that_is_not_at_its_place_stays_a_gold_text_without_a_place_and_is_counted(write, start):
    content = copy.deepcopy(FILE)
    questions(content)[0]["answers"][0]["answer_start"] = start
    squad = read_squad(write(content))
    assert squad.questions[0].answers == (Answer("Eider", None),)
    assert squad.misplaced == ("q1",)


def test_a_byte_order_mark_is_no_damage(write):
    assert len(read_squad(write(b"\xef\xbb\xbf" + json.dumps(FILE).encode())).questions) == 2


def test_other_content_has_another_digest(write):
    first = read_squad(write(FILE)).sha256
    assert read_squad(write({**FILE, "version": "x"})).sha256 != first == read_squad(write(FILE)).sha256


def spoil(change):
    content = copy.deepcopy(FILE)
    change(content)
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(FILE).encode()[:200], "or it is cut short .* line 1"),
        (b"", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"data": ' + b"9" * 5_000 + b"}", "is not JSON"),
        (b"id\tquestion\n", "is not JSON"),
        (b'{"data": "\xff"}', "is not UTF-8"),
        ([], "the file is not an object; this is no SQuAD file"),
        ({"version": "1.1"}, "the file has no 'data'"),
        ({"data": {}}, "'data' of the file is not a list"),
        ({"data": []}, "holds no question"),
        (spoil(lambda c: c["data"][0].pop("paragraphs")), "article 1 has no 'paragraphs'"),
        (spoil(lambda c: c["data"][0]["paragraphs"][0].pop("context")), "article 1, paragraph 1 has no 'context'"),
        (spoil(lambda c: c["data"][0]["paragraphs"][0].update(context=" ")), "has an empty 'context'"),
        (spoil(lambda c: questions(c)[1].pop("id")), "article 1, paragraph 1, question 2 has no 'id'"),
        (spoil(lambda c: questions(c)[1].update(id=7)), "'id' of .* is not a str"),
        (spoil(lambda c: questions(c)[1].update(id="q1")), "two questions have the id 'q1'"),
        (spoil(lambda c: questions(c)[0].pop("question")), "question 'q1' has no 'question'"),
        (spoil(lambda c: questions(c)[0].pop("answers")), "question 'q1' has no 'answers'"),
        (spoil(lambda c: questions(c)[0].update(answers=[])), "question 'q1' has no answers"),
        (spoil(lambda c: questions(c)[0].update(is_impossible=True)), "'q1' is impossible and has answers"),
        (spoil(lambda c: questions(c)[0].update(is_impossible="no")), "'is_impossible' of question 'q1' is not a bool"),
        (spoil(lambda c: questions(c)[0]["answers"][0].pop("answer_start")), "'q1' has no 'answer_start'"),
        (spoil(lambda c: questions(c)[0]["answers"][0].update(answer_start="9")), "is not an int"),
        (spoil(lambda c: questions(c)[0]["answers"][0].update(answer_start=True)), "is not an int"),
        (spoil(lambda c: questions(c)[0]["answers"][0].update(text="")), "an answer of question 'q1' has an empty"),
        (
            spoil(lambda c: questions(c)[0].update(question="\ud83d?")),
            "'question' of question 'q1' holds half a character",
        ),
        (spoil(lambda c: questions(c)[0].update(answers=["Eider"])), "an answer of question 'q1' is not an object"),
    ],
)
def test_a_broken_file_is_refused_by_file_and_question(write, content, message):
    path = write(content)
    with pytest.raises(UserError, match=message) as caught:
        read_squad(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"there is no file .*none\.json"):
        read_squad(tmp_path / "none.json")
    with pytest.raises(UserError, match="is a folder"):
        read_squad(tmp_path)
