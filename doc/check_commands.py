"""Run the commands of pages as a new user types them.

    python doc/check_commands.py PAGE [PAGE ...]

Commands are the lines of code blocks that begin with ``python -m sklearn_simlearn`` or
write a file by ``>``. They run one after another in a new folder with the tables that
the pages name. A service is asked for its page and for a search, and is then stopped;
its port is a free one. The exit code is 1 if a command fails or does not write a file
that it names.
"""

import itertools
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

START = "python -m sklearn_simlearn"

# Options whose values are files or folders that a command writes.
OUTPUTS = ("--report", "--save")

# Seconds until a service answers. Several workers start slowly on a busy machine.
TIMEOUT = 120

# Texts of the user, by label.
TEXTS = {
    "card": ["my card is lost", "the card does not work", "when does my card arrive"],
    "loan": ["how much is a loan", "pay a loan back early", "is my loan approved"],
    "fees": ["what are the fees", "why is there a fee", "a fee that I do not know"],
}


def main(pages):
    """Run the commands of all pages; return the exit code."""
    failures = []
    for page in map(Path, pages):
        commands = find_commands(page.read_text(encoding="utf-8"))
        if not commands:
            failures.append(f"{page} has no commands")
        with tempfile.TemporaryDirectory() as folder:
            for command in commands:
                start = time.perf_counter()
                fault = run(command, Path(folder))
                print(f"{time.perf_counter() - start:5.1f} s  {shlex.join(command)}")
                if fault:
                    failures.append(f"{page}: {shlex.join(command)}: {fault}")
    print("\n".join(failures))
    return 1 if failures else 0


def find_commands(text):
    """Return the commands in the code blocks of a page, as lists of arguments."""
    text = re.sub(r"\\\n +", "", text)
    lines = re.findall(rf"^ +({re.escape(START)}.*|python -c .*>.*)$", text, re.M)
    return [shlex.split(line) for line in lines]


def run(command, folder):
    """Run a command in a folder; return its fault, or None."""
    for name in command:
        if name.endswith(".csv") and not (folder / name).exists():
            write_table(folder / name)
    command = [sys.executable, *command[1:]]
    if command[-1].startswith(">"):
        with open(folder / command[-1][1:], "wb") as file:
            return subprocess.run(command[:-1], stdout=file).returncode or None
    if "serve" in command:
        return serve(command, folder)
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if result.returncode != 0 or not result.stdout.strip():
        return f"exit code {result.returncode}, {result.stderr.strip()}"
    for option, name in itertools.pairwise(command):
        if option in OUTPUTS and not (folder / name).exists():
            return f"did not write {name}"
    return None


def write_table(path):
    """Write a table of texts with labels and a column of metadata."""
    rows = [
        f"{text} {number},{label},{'en' if number % 2 else 'de'}"
        for label, texts in TEXTS.items()
        for text in texts
        for number in range(8)
    ]
    path.write_text("\n".join(["text,label,lang", *rows]), encoding="utf-8")


def serve(command, folder):
    """Start a service, ask for its page and for a search; return the fault, or None."""
    process = subprocess.Popen(
        [*command, "--port", "0"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        if "http://" not in line:
            return f"the service did not start: {line}"
        address = line.split()[-1]
        with urllib.request.urlopen(address, timeout=TIMEOUT) as response:
            if b"Similarity search" not in response.read():
                return "the page is another one"
        name = command[command.index("serve") + 1]
        body = json.dumps({"queries": [{"text": "lost card"}], "k": 3}).encode()
        request = urllib.request.Request(
            f"{address}indexes/{name}/search",
            body,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            (results,) = json.load(response)["results"]
        if len(results) != 3 or "card" not in results[0]["text"]:
            return f"a search returned {results}"
        return None
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
