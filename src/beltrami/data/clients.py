"""The ordinary clients of the registries, as subprocesses: pip, npm and apt-get.

Each is asked for one package file, in a folder of our own, and for nothing else: no dependency, no
installation, no script of the package. Wheels only, since pip would run a source archive's build to
learn its name. The clients read the user's own configuration (indexes, mirrors, proxies,
certificates), but not a project's, such as an `.npmrc` in the current folder.

What a client does with a broken connection is its own: all three try again, and pip from 25.1 on
continues where it stopped. None keeps half a file for a later call, but pip and npm keep whole ones
in their caches.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from beltrami.data.entry import Entry, Kind

PROGRAMS: dict[Kind, str] = {"pypi": "pip", "npm": "npm", "debian": "apt-get"}
SUFFIXES: dict[Kind, str] = {"pypi": ".whl", "npm": ".tgz", "debian": ".deb"}
# Into the current folder, even if the user's configuration names another.
HERE: dict[Kind, tuple[str, ...]] = {
    "pypi": ("--dest=.",),
    "npm": ("--pack-destination=.",),
    "debian": (),
}
GRACE = 5.0  # seconds that a client has to end when we do


class ClientError(RuntimeError):
    """The client is missing or failed; the message is one line."""


def download(entry: Entry, folder: Path) -> Path:
    """Fetch the entry's package file into an empty folder.

    Debian keeps one version a release. Where apt-get does not offer the catalogue's, its own is
    taken, under apt's signature; the files in it must still be those of the catalogue.
    """
    command = [*_program(entry.kind), *_arguments(entry), *HERE[entry.kind]]
    code, output = _run(command, folder)
    if code and entry.kind == "debian" and "was not found" in output:
        code, output = _run([*_program(entry.kind), "download", entry.package], folder)
    if code:
        raise ClientError(f"{PROGRAMS[entry.kind]} failed: {reason(entry.kind, output)}")
    packages = sorted(folder.glob(f"*{SUFFIXES[entry.kind]}"))
    if len(packages) != 1:
        names = ", ".join(path.name for path in packages) or "nothing"
        raise ClientError(f"{PROGRAMS[entry.kind]} was to bring one package file, brought {names}")
    return packages[0]


def by_hand(entry: Entry) -> str:
    """The command that fetches the package file into the current folder, to be typed."""
    program = ["python", "-m", "pip"] if entry.kind == "pypi" else [PROGRAMS[entry.kind]]
    return shlex.join([*program, *_arguments(entry)])


def reason(kind: Kind, output: str) -> str:
    """The line of a client's output that says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = (lines or ["no message"])[-1]
    if kind == "npm":
        messages = [line.removeprefix("npm error").strip() for line in lines if "npm error" in line]
        codes = ("", "code", "syscall", "errno")
        facts = (message for message in messages if message.split(" ", 1)[0] not in codes)
        return next(facts, last)
    mark = "ERROR:" if kind == "pypi" else "E:"
    text = ([line for line in lines if line.startswith(mark)] or [last])[-1]
    # pip ends with "no matching distribution" also where it reached no index at all
    if kind == "pypi" and any("connection broken" in line for line in lines):
        return f"{text} (no connection)"
    if kind == "debian" and "Unable to locate package" in text:
        return f"{text} (`apt-get update` brings the lists of packages)"
    return text


def _arguments(entry: Entry) -> list[str]:
    if entry.kind == "pypi":
        options = ["--no-deps", "--only-binary=:all:", *entry.client_options]
        return ["download", *options, f"{entry.package}=={entry.version}"]
    if entry.kind == "npm":
        spec = f"{entry.package}@{entry.version}"
        return ["pack", "--ignore-scripts", *entry.client_options, spec]
    return ["download", *entry.client_options, f"{entry.package}={entry.version}"]


def _has_pip() -> bool:
    """Whether this Python has pip.

    Not by `find_spec`: setuptools takes that for pip at work, and from then on leaves Python's own
    distutils alone, without which torch's compiler does not start.
    """
    try:
        distribution("pip")
    except PackageNotFoundError:
        return False
    return True


def _program(kind: Kind) -> list[str]:
    if kind == "pypi" and _has_pip():
        return [sys.executable, "-P", "-m", "pip"]
    names = ("pip3", "pip") if kind == "pypi" else (PROGRAMS[kind],)
    for name in names:
        if program := shutil.which(name):
            return [program]
    raise ClientError(f"{PROGRAMS[kind]} is not installed")


def _run(command: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and output; when we are interrupted, the client ends too."""
    environment = {
        **os.environ,
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "npm_config_update_notifier": "false",
        "npm_config_loglevel": "error",
        "NO_COLOR": "1",
    }
    environment.setdefault("PIP_RESUME_RETRIES", "5")  # older versions ignore it
    if Path(command[0]).name == "apt-get":
        environment["LC_ALL"] = "C.UTF-8"  # its messages are read
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise ClientError(f"{command[0]} cannot be started: {error.strerror}") from error
    with process:
        try:
            output, _ = process.communicate()
        except BaseException:
            _stop(process)
            raise
    return process.returncode, output


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
