#!/usr/bin/env python3
"""Runs test programs, and prints what each wrote when it has ended.

usage: test-programs.py BUILT NAME|!NAME [SCRIPT...]

BUILT is a file with what `cargo build --message-format=json` wrote. NAME selects one program, !NAME all others.
Two run at a time, each alone in its view of the machine (alone.sh); SCRIPTs take part as they are. A program that
runs for too long is ended, and its processes are listed. Exits with 1 if one has failed.
"""
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Programs at a time: most wait most of the time.
AT_ONCE = 2
# Places that a program takes if it measures the machine itself.
PLACES = {"dray_measure (unit tests)": AT_ONCE}
# Programs that take minutes start first, longest first, and one that needs all places last.
LONG = ["bench", "lab", "switch", "upf", "cli", "containers", "coverage", "test-packages.sh", "test-static.sh"]
# Seconds that a program may run: the longest takes five minutes.
LIMIT_S = 1200
ALONE = Path(__file__).with_name("alone.sh").resolve()


def programs(built):
    """Returns the test programs, each as its name, its command and the folder of its package."""
    for line in Path(built).read_text().splitlines():
        message = json.loads(line)
        if message.get("profile", {}).get("test") and message["executable"]:
            package = Path(message["manifest_path"]).parent
            target = message["target"]
            name = target["name"] if "test" in target["kind"] else f"{target['name']} (unit tests)"
            yield name, [ALONE, message["executable"]], package


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


def places(program):
    return PLACES.get(program[0], 1)


def run(program):
    name, command, package = program
    began = time.monotonic()
    child = subprocess.Popen(
        command, cwd=package, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
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
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip().splitlines()[2])
    built, wanted, *scripts = sys.argv[1:]
    chosen = [p for p in programs(built) if (p[0] != wanted[1:] if wanted[0] == "!" else p[0] == wanted)]
    if not chosen:
        sys.exit(f"{built}: no test program {wanted}")
    chosen += [(script.name, [script], script.parent) for script in (Path(name).resolve() for name in scripts)]
    chosen.sort(key=lambda p: (places(p) == AT_ONCE, LONG.index(p[0]) if p[0] in LONG else len(LONG), p[0]))
    os.environ["DRAY_HUGEPAGES"] = Path("/proc/sys/vm/nr_hugepages").read_text()
    free = threading.Semaphore(AT_ONCE)
    passed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for program in chosen:
            for _ in range(places(program)):
                free.acquire()
            passed.append(pool.submit(run, program))
            passed[-1].add_done_callback(lambda _, program=program: free.release(places(program)))
    sys.exit(0 if all(future.result() for future in passed) else 1)


main()
