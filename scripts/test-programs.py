#!/usr/bin/env python3
"""Runs test programs, and prints what each wrote when it has ended.

usage: test-programs.py BUILT NAME|!NAME

BUILT is a file with what `cargo build --message-format=json` wrote. NAME selects one program, !NAME all others.
Two run at a time, each alone in its view of the machine (alone.sh). A program that runs for too long is ended, and
its processes are listed. Exits with 1 if one has failed.
"""
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Programs at a time: most wait most of the time.
AT_ONCE = 2
# Programs that take minutes start first, longest first.
LONG = ["bench", "lab", "cli", "switch", "upf", "containers", "coverage"]
# Programs that measure the machine itself run one by one, after the others.
MEASURING = ["dray_measure (unit tests)"]
# Seconds that a program may run: the longest takes five minutes.
LIMIT_S = 1200
ALONE = Path(__file__).with_name("alone.sh").resolve()


def programs(built):
    """Returns the test programs, each as its name, its file and the folder of its package."""
    for line in Path(built).read_text().splitlines():
        message = json.loads(line)
        if message.get("profile", {}).get("test") and message["executable"]:
            package = Path(message["manifest_path"]).parent
            target = message["target"]
            name = target["name"] if "test" in target["kind"] else f"{target['name']} (unit tests)"
            yield name, message["executable"], package


def descendants(pid):
    """Returns a line for each process below `pid`: its number, age in seconds, state and command."""
    listing = subprocess.run(["ps", "-eo", "ppid,pid,etimes,stat,args"], stdout=subprocess.PIPE, text=True).stdout
    below, lines = {str(pid)}, ""
    # Parents are before their children, except where numbers have begun anew.
    for line in listing.splitlines():
        parent, own = line.split()[:2]
        if parent in below:
            below.add(own)
            lines += line[:160] + "\n"
    return lines


def run(program):
    name, file, package = program
    began = time.monotonic()
    child = subprocess.Popen(
        [ALONE, file], cwd=package, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    late = b""
    try:
        written, _ = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        late = f"ended after {LIMIT_S} s with these processes:\n{descendants(child.pid)}".encode()
        # What alone.sh started, and with it all processes of the program.
        subprocess.run(["pkill", "-KILL", "--parent", str(child.pid)])
        written, _ = child.communicate()
    seconds = time.monotonic() - began
    sys.stdout.buffer.write(f"== {package.name}: {name}\n".encode() + written + late + f"   {seconds:.0f} s\n".encode())
    sys.stdout.flush()
    return child.returncode == 0


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip().splitlines()[2])
    built, wanted = sys.argv[1:]
    chosen = [p for p in programs(built) if (p[0] != wanted[1:] if wanted[0] == "!" else p[0] == wanted)]
    if not chosen:
        sys.exit(f"{built}: no test program {wanted}")
    chosen.sort(key=lambda p: (LONG.index(p[0]) if p[0] in LONG else len(LONG), p[0]))
    os.environ["DRAY_HUGEPAGES"] = Path("/proc/sys/vm/nr_hugepages").read_text()
    passed = []
    for at_once, part in [
        (AT_ONCE, [p for p in chosen if p[0] not in MEASURING]),
        (1, [p for p in chosen if p[0] in MEASURING]),
    ]:
        with ThreadPoolExecutor(at_once) as pool:
            passed += pool.map(run, part)
    sys.exit(0 if all(passed) else 1)


main()
