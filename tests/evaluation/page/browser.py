"""A page in a headless Chromium, driven by its own flags: what a reader's browser makes of it."""

import dataclasses
import json
import re
import shutil
import socket
import subprocess
import threading
from html import unescape
from pathlib import Path

import pytest

PROBE = """
<script>
const said = {errors: [], requests: []};
addEventListener('error', event => said.errors.push(String(event.message || event.target.outerHTML)), true);
addEventListener('load', () => {
  for (const one of document.querySelectorAll('details')) one.open = true;
  said.pictures = document.images.length;
  said.missing = [...document.images].filter(one => !one.complete || !one.naturalWidth).map(one => one.alt);
  const loaded = performance.getEntriesByType('resource').map(one => one.name);
  said.requests = loaded.filter(name => !name.startsWith('data:'));
  said.width = innerWidth;
  said.scrolls = document.documentElement.scrollWidth;
  said.dark = matchMedia('(prefers-color-scheme: dark)').matches;
  said.page = getComputedStyle(document.body).backgroundColor;
  said.text = getComputedStyle(document.body).color;
  const soft = [...document.querySelectorAll('.note, figcaption, .absent, thead th')];
  said.soft = soft.map(one => getComputedStyle(one).color);
  parent.postMessage(JSON.stringify(said), '*');
});
</script>
"""
COLLECT = """
<!doctype html><title>frames</title><pre id="said"></pre>
<script>
addEventListener('message', event => { document.getElementById('said').textContent += event.data + '\\n'; });
</script>
"""
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --disable-dev-shm-usage --enable-logging=stderr --v=0 --virtual-time-budget=5000"
).split()


@dataclasses.dataclass(frozen=True)
class Seen:
    """What came of a page."""

    frames: dict[int, dict]
    """By the width of the window: what the page says of itself once it is loaded."""
    console: list[str]
    """Errors and warnings, also of the page as it is, without a probe in it."""
    asked: list[str]
    """What was wanted from anywhere, first lines of requests, but for what Chromium asks its maker of itself."""


def look(page: str, folder: Path, widths=(400, 1600), dark: bool = False) -> Seen:
    """Opens the page, as it is and once for each width; skips the test where there is no Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here: apt-get install chromium")
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    (folder / "page.html").write_text(page)
    (folder / "probe.html").write_text(free.replace("<title>", f"{PROBE}<title>", 1))
    frames = [f'<iframe src="probe.html" style="width:{width}px;height:900px;border:0"></iframe>' for width in widths]
    (folder / "frames.html").write_text(f'{COLLECT}{"".join(frames)}<iframe src="page.html"></iframe>')
    with _Refusing() as proxy:
        command = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--proxy-server=127.0.0.1:{proxy.port}"]
        command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--dump-dom"]
        ran = subprocess.run([*command, (folder / "frames.html").as_uri()], capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="said">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert found and found[1].strip(), f"the page said nothing: {ran.stderr[-2000:]}"
    told = [json.loads(line) for line in unescape(found[1]).splitlines()]
    console = [line for line in ran.stderr.splitlines() if ":CONSOLE:" in line]
    of_itself = r"\S+ (https?://)?([\w-]+\.google\.com|update\.googleapis\.com)[:/]"  # not fonts.googleapis.com
    asked = [line for line in proxy.asked if not re.match(of_itself, line)]
    return Seen({one["width"]: one for one in told}, console, asked)


class _Refusing:
    """A proxy that all requests would go through; it writes them down and answers none."""

    def __enter__(self):
        self.asked, self._open = [], True
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self):
        while self._open:
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(5)
                self.asked.append(connection.recv(4096).split(b"\r\n")[0].decode("latin-1"))

    def __exit__(self, *_):
        self._open = False
        self._thread.join()
        self._socket.close()


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two colours "rgb(r, g, b)", 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
