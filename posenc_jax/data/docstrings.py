"""The embedded default text: English prose from the documentation of Python packages that are installed anyway.

Files are parsed, never imported. A module becomes one document: the paragraphs of its docstrings that read as English,
in the order of the file. Code, doctests, tables, headings and markup go; what occurs twice anywhere is kept once
(jax.numpy repeats numpy, a subclass its base). So the text is a function of the packages' versions alone.
"""

import ast
import contextlib
import functools
import gc
import inspect
import os
import platform
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from posenc_jax.errors import UserError

STANDARD_LIBRARY = "python"
PACKAGES = (
    STANDARD_LIBRARY, "numpy", "scipy", "sklearn", "matplotlib", "mpl_toolkits", "jax", "flax", "optax", "orbax",
    "grain", "tensorflow_datasets", "PIL", "fontTools", "narwhals", "joblib", "pyparsing", "treescope", "rich",
    "fsspec", "absl", "etils", "packaging", "ml_collections", "pygments", "tensorboardX", "simple_parsing",
    "psutil", "zstandard", "attr", "opt_einsum",
)  # fmt: skip
"""What `docstrings:` reads where it is installed: the packages of requirements.txt and what they bring along."""

MAX_FILE_BYTES = 1_000_000  # above it: generated tables
MIN_SHARE = 0.05  # of a file in triple quotes; below it a third of the parsing would go into 2 % of the words
MIN_WORDS = 8  # of a paragraph
MIN_DOCUMENT_WORDS = 30  # of a module; what says less is often the same sentence with another name in it
_BLOCK = re.compile(rb"""^[ \t]*[rRuU]?("{3}|'{3}).*?\1""", re.MULTILINE | re.DOTALL)
_NO_PROSE = frozenset("tests test testing __pycache__ site-packages dist-packages _vendor vendored idlelib".split())


def docstring_documents(packages: tuple[str, ...] = ()) -> Iterator[str]:
    """Documents of the named packages, or of those of `PACKAGES` that are installed; paragraphs are lines.

    Raises `UserError` when a named package is not installed. Reading all of them takes 10 to 20 seconds the first time
    in a process.
    """
    return (document for _, document in _read(packages))


def package_words(packages: tuple[str, ...] = ()) -> dict[str, int]:
    """Words of prose from each package."""
    words: Counter = Counter()
    for package, document in _read(packages):
        words[package] += len(document.split())
    return dict(words)


def installed(packages: tuple[str, ...] = ()) -> dict[str, str]:
    """Version of each package that would be read: what the text is a function of."""
    names = metadata.packages_distributions()
    versions = {STANDARD_LIBRARY: platform.python_version()}
    for package, _ in _roots(packages):
        found = [metadata.version(name) for name in sorted(set(names.get(package, [])))]
        versions.setdefault(package, ", ".join(found))
    return versions


@functools.lru_cache(maxsize=4)
def _read(packages: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    seen: set[str] = set()
    documents = []
    with _no_garbage_collection():
        for package, file in _files(packages):
            paragraphs = []
            for paragraph in (paragraph for docstring in _docstrings(file) for paragraph in prose(docstring)):
                if paragraph not in seen:
                    seen.add(paragraph)
                    paragraphs.append(paragraph)
            if sum(len(paragraph.split()) for paragraph in paragraphs) >= MIN_DOCUMENT_WORDS:
                documents.append((package, "\n".join(paragraphs)))
    return tuple(documents)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A syntax tree is many objects and no cycles: to search it for garbage is a fifth of the time of parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _roots(packages: tuple[str, ...]) -> list[tuple[str, Path]]:
    paths = sysconfig.get_paths()
    found = []
    for package in packages or PACKAGES:
        places = [Path(paths["stdlib"])] if package == STANDARD_LIBRARY else []
        places += [Path(paths[kind]) / f"{package}{end}" for kind in ("purelib", "platlib") for end in ("", ".py")]
        place = next((place for place in places if place.exists()), None)
        if place is not None:
            found.append((package, place))
        elif packages:
            raise UserError(f"docstrings: no package {package!r} is installed in {paths['purelib']}")
    return found


def _files(packages: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for package, root in _roots(packages):
        files = [root] if root.is_file() else _python_files(root)
        for file in sorted(files, key=lambda file: file.relative_to(root).parts):
            if file.stat().st_size <= MAX_FILE_BYTES:
                yield package, file


def _python_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _NO_PROSE]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


def _docstrings(file: Path) -> Iterator[str]:
    """Docstrings of a module in the order of the file, and the texts it hands to other modules as documentation."""
    source = file.read_bytes()
    if sum(len(block[0]) for block in _BLOCK.finditer(source)) < MIN_SHARE * len(source):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escapes
            module = ast.parse(source)
    except (SyntaxError, ValueError):  # templates, and files for another Python
        return
    yield from _walk(module)


def _walk(node: ast.AST) -> Iterator[str]:
    for child in node.body:
        match child:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield inspect.cleandoc(text)
            case ast.Expr(value=ast.Call(args=arguments)):  # numpy's add_newdoc("numpy", "zeros", "...")
                yield from (inspect.cleandoc(text) for text in _strings(arguments))
            case ast.Assign(value=ast.Dict(values=values)):  # the language reference in pydoc_data/topics.py
                yield from (inspect.cleandoc(text) for text in _strings(values) if "\n\n" in text)
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.If() | ast.Try():
                yield from _walk(child)


def _strings(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Tuple):
            yield from _strings(node.elts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            yield node.value


# ---- from a docstring to prose ------------------------------------------------------------------------------------

_DIRECTIVE = re.compile(r"\s*\.\. ")
_PROSE_DIRECTIVE = re.compile(r"\s*\.\. (note|warning|tip|important|caution|hint|attention|rubric)::")
_UNDERLINE = re.compile(r"\s*([-=~^*#+\"'.`_])\1{2,}\s*$")
_ITEM = re.compile(r"\s*([-*+•]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
_FIELD = re.compile(r"\s*(:\w+[^:]*:|\*{0,2}`*[\w.,* ]{1,40}`*( \([^)]*\))?\s*:)\s+(?=\S)")
_PARAMETER = re.compile(r"\s*[\w.*,`'\" ]+ ?:( .*)?$")

_MARKUP = [
    (re.compile(r":math:`[^`]*`"), "this"),
    (re.compile(r":[\w:+-]+:`(?:[^`<]*\.)?~?\.?([^`<]+?)(?:\s*<[^`>]*>)?`"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{1,2}"), r"\1"),
    (re.compile(r"\[([^\]]+)\]\([^)]*\)"), r"\1"),
    (re.compile(r"\s*\[[\w-]+\]_"), ""),
    (re.compile(r"<?https?://\S+"), ""),
    (re.compile(r"`+([^`]*)`+_{0,2}"), r"\1"),
    (re.compile(r"(?<!\w)(\*{1,2}|_{1,2}(?=[a-z ]+_))([^*_\n]+?)\1(?!\w)"), r"\2"),
    (re.compile(r"::$"), ":"),
    (re.compile(r"\s+"), " "),
]

_COMMON = frozenset(
    "a all an and any are as at be been but by can do does each for from has have if in into is it its may more must "
    "no not of on one only or other should so such than that the their then there these they this to two use used was "
    "we when where which will with would you your".split()
)


def prose(docstring: str) -> Iterator[str]:
    """The paragraphs of a dedented docstring that read as English, each on one line and without markup."""
    for lines in _paragraphs(docstring.splitlines()):
        text = " ".join(lines)
        if text.count(" ") < MIN_WORDS - 1:  # most paragraphs: names and values
            continue
        for pattern, replacement in _MARKUP:
            text = pattern.sub(replacement, text)
        text = text.strip()
        if _is_english(text):
            yield text[0].upper() + text[1:]


def _is_english(text: str) -> bool:
    """At least `MIN_WORDS` words, most of letters alone, a fifth the small words that hold sentences together."""
    words = text.split()
    if len(words) < MIN_WORDS or text[-1] not in ".!?:;)\"'":
        return False
    plain = sum(word.strip(".,;:!?()\"'").replace("-", "").replace("'", "").isalpha() for word in words)
    common = sum(word.lower() in _COMMON for word in words)
    return plain >= 0.8 * len(words) and common >= 0.2 * len(words)


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Groups of lines that belong together, without code, directives, headings and the names of parameters."""
    group: list[str] = []
    skip_above: int | None = None  # lines indented deeper than this are code or a directive's content
    fenced = False
    for number, line in enumerate([*lines, ""]):
        indent = len(line) - len(line.lstrip())
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if not line.strip() or fenced:
            if group and group[-1].rstrip().endswith("::"):
                skip_above = len(group[0]) - len(group[0].lstrip())
            if group:
                yield group
            group = []
            continue
        if skip_above is not None and indent > skip_above:
            continue
        skip_above = None
        if _ends_group(line, following):
            if group:
                yield group
            group = []
            if _DIRECTIVE.match(line) and not _PROSE_DIRECTIVE.match(line):
                skip_above = indent
            continue
        deeper = len(following) - len(following.lstrip()) > indent
        if deeper and _PARAMETER.match(line):
            if group:
                yield group
            group = []
            continue
        item = _ITEM.match(line) or _FIELD.match(line)
        if item:
            if group:
                yield group
            group = []
            line = " " * indent + line[item.end() :]
        group.append(line)


def _ends_group(line: str, following: str) -> bool:
    """A line that is no text: a doctest, a directive, a table's edge, an underline or the heading above one."""
    start = line.lstrip()
    return (
        start.startswith((">>>", "...", "|", "+-", "```", "$ ", "@", "#"))
        or _DIRECTIVE.match(line) is not None
        or _UNDERLINE.match(line) is not None
        or (_UNDERLINE.match(following) is not None and len(following.strip()) >= 0.5 * len(start))
    )
