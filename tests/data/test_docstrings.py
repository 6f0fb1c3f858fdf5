"""From docstrings to prose, and the text being a function of the packages alone."""

import inspect
import json
import subprocess
import sys
from textwrap import dedent

import pytest

from posenc_jax.data import docstrings
from posenc_jax.data.docstrings import docstring_documents, installed, package_words, prose
from posenc_jax.errors import UserError

NUMPYDOC = """
Return evenly spaced numbers over a specified interval.

Returns `num` evenly spaced samples, over the
interval [`start`, `stop`], as :func:`numpy.arange` would with **more** care [1]_.

.. versionchanged:: 1.20.0
    Values are rounded towards ``-inf`` instead of ``0`` when an integer dtype is given to it.

.. note:: Ignored because it stands on the line of the directive.
    The content of a note is text that is as good as any other text here.

Parameters
----------
start : array_like
    The starting value of the sequence, which is the first of the samples that it returns.
num : int, optional
    Number of samples.

References
----------
.. [1] A. Uthor, "A paper that has a long title and is in a journal", 1999.

Examples
--------
>>> linspace(2.0, 3.0, num=5)
array([2.  , 2.25, 2.5 , 2.75, 3.  ])

The same can be had by hand, as these lines of code would show it::

    this is not to be read as text, for it is what the two colons announce.

* Each item of a list is a paragraph of its own if it is long enough.
* A short item.

=====  ==============================
name   what the name in a table is for it
=====  ==============================
"""

GOOGLE = """
Applies the function to each of the leaves of the tree.

Args:
  function: a function of one leaf, which is called for each of the leaves in the tree.
  tree (optional): The tree.

```
this is code in a fence and so it is not to be read as if it were text.
```
"""


def test_numpydoc_gives_its_sentences_and_nothing_else():
    assert list(prose(inspect.cleandoc(NUMPYDOC))) == [
        "Returns num evenly spaced samples, over the interval [start, stop], as arange would with more care.",
        "The content of a note is text that is as good as any other text here.",
        "The starting value of the sequence, which is the first of the samples that it returns.",
        "The same can be had by hand, as these lines of code would show it:",
        "Each item of a list is a paragraph of its own if it is long enough.",
    ]


def test_google_style_gives_its_sentences_and_nothing_else():
    assert list(prose(inspect.cleandoc(GOOGLE))) == [
        "Applies the function to each of the leaves of the tree.",
        "A function of one leaf, which is called for each of the leaves in the tree.",
    ]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site-packages folder with one package, written in an order that is not the order of names."""
    files = {
        "b.py": 'def f():\n    """This is the documentation of a function that is in the module b."""\n',
        "a/__init__.py": '''
            """This is the documentation of the module a, which is the first one of all."""
            import nothing_that_exists
            class C:
                """This is the documentation of a class that is in the module a."""
                def method(self):
                    """This is the documentation of a function that is in the module b."""
            raise RuntimeError("importing me fails")
            ''',
        "news.py": """
            add_newdoc("here", "there", '''
            This is the documentation that is given to a function of another module.
            ''')
            topics = {"one": '''This is a topic of the reference that is kept in a dictionary.

            It goes on in another paragraph, which is as good as the first of them.'''}
            """,
        "short.py": '"""This is one sentence, and a module that says no more is not read."""\n',
        "tests/test_a.py": '"""This is the documentation of a test, and it is not to be read at all."""\n',
        "template.py": '"""This is no Python of any version, so it is passed without a word."""\n{{ name }} = = 1\n',
        "data.bin": "",
    }
    for name, content in files.items():
        file = tmp_path / "package" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(content))
    monkeypatch.setattr(
        docstrings.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path), "platlib": str(tmp_path), "stdlib": "/no"}
    )
    docstrings._read.cache_clear()
    yield tmp_path
    docstrings._read.cache_clear()


def test_modules_are_parsed_in_order_of_names_and_paragraphs_kept_once(site):
    assert list(docstring_documents(("package",))) == [
        "This is the documentation of the module a, which is the first one of all.\n"
        "This is the documentation of a class that is in the module a.\n"
        "This is the documentation of a function that is in the module b.",
        "This is the documentation that is given to a function of another module.\n"
        "This is a topic of the reference that is kept in a dictionary.\n"
        "It goes on in another paragraph, which is as good as the first of them.",
    ]
    assert package_words(("package",)) == {"package": 15 + 13 + 13 + 13 + 13 + 15}


def test_a_package_that_is_not_installed_is_named(site):
    with pytest.raises(UserError, match="no package 'packages' is installed"):
        list(docstring_documents(("packages",)))


def test_a_large_file_is_passed(site, monkeypatch):
    monkeypatch.setattr(docstrings, "MAX_FILE_BYTES", 10)
    assert list(docstring_documents(("package",))) == []


def test_the_same_packages_give_the_same_text_in_another_process():
    code = (
        "import hashlib, json, sys; from posenc_jax.data.docstrings import docstring_documents; "
        "text = list(docstring_documents(('rich', 'absl', 'packaging'))); "
        "print(json.dumps([len(text), hashlib.sha256('\\n'.join(text).encode()).hexdigest(), 'rich' in sys.modules]))"
    )
    first, second = (json.loads(subprocess.check_output([sys.executable, "-c", code])) for _ in range(2))
    assert first == second
    assert first[0] > 20 and not first[2]  # enough text, and nothing was imported to get it


def test_what_is_installed_is_named_with_versions():
    versions = installed(("numpy", "rich"))
    assert versions["numpy"] == __import__("numpy").__version__ and versions["rich"]
