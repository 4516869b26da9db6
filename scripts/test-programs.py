#!/usr/bin/env python3
"""Runs test programs, and prints what each wrote when it has ended.

usage: test-programs.py BUILT [SCRIPT...]

BUILT is a file with what `cargo build --message-format=json` wrote. Each program runs alone in its view of the machine
(alone.sh), beside others; SCRIPTs take part as they are. A program that runs for too long is ended, and its processes
are listed. Tests that failed run once more after all others, with nothing beside them; those that pass then are named.
Exits with 1 if a test fails again, or if a program or SCRIPT fails otherwise.
"""
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Programs whose tests send frames, which they lose or count wrongly without CPU time, in the order of their starts: two
# at a time, since most wait most of the time. "lab" checks the number of huge pages, of which "vm" beside it takes
# none. All others run beside these two, one at a time, with what is left of the CPUs.
URGENT = ["vm", "lab", "bench", "switch", "upf", "coverage", "cli", "containers"]
NICENESS = 10
# Programs that measure the machine itself, after all others.
LAST = ["dray_measure (unit tests)"]
# Seconds that a program may run: the longest takes ten minutes.
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


def failed_tests(written):
    """Returns the names of the tests that have failed, which a test program lists at its end."""
    _, found, listed = written.decode(errors="replace").rpartition("\nfailures:\n")
    if not found:
        return []
    return [line.strip() for line in itertools.takewhile(lambda line: line.startswith("    "), listed.splitlines())]


def run(program, niceness=0):
    """Runs a program and prints what it wrote. Returns the names of tests that failed; None if it failed otherwise."""
    name, command, package = program
    began = time.monotonic()
    child = subprocess.Popen(
        ["nice", f"-n{niceness}", *command],
        cwd=package,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    late = []

    def end():
        late.append(f"ended after {LIMIT_S} s with these processes:\n{descendants(child.pid)}")
        # What alone.sh started, and with it all processes of the program.
        subprocess.run(["pkill", "-KILL", "--parent", str(child.pid)])

    limit = threading.Timer(LIMIT_S, end)
    limit.start()
    written = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    limit.cancel()
    times = f"   {time.monotonic() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU time\n"
    sys.stdout.buffer.write(f"== {package.name}: {name}\n".encode() + written + "".join([*late, times]).encode())
    sys.stdout.flush()
    return [] if child.returncode == 0 else failed_tests(written) or None


def passes_alone(program, tests):
    """Runs tests of a program again; returns true if they pass."""
    name, command, package = program
    for test in tests:
        print(f"again, alone: {test}", flush=True)
    failed = run((f"{name}, again", [*command, "--exact", *tests], package))
    for test in tests:
        if failed is not None and test not in failed:
            print(f"passed only alone: {name} {test}", flush=True)
    return failed == []


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip().splitlines()[2])
    built, *scripts = sys.argv[1:]
    chosen = list(programs(built))
    if not chosen:
        sys.exit(f"{built}: no test programs")
    chosen += [(script.name, [script], script.parent) for script in (Path(name).resolve() for name in scripts)]
    urgent = sorted((p for p in chosen if p[0] in URGENT), key=lambda p: URGENT.index(p[0]))
    others = sorted(p for p in chosen if p[0] not in URGENT + LAST)
    os.environ["DRAY_HUGEPAGES"] = Path("/proc/sys/vm/nr_hugepages").read_text()
    with ThreadPoolExecutor(2) as first, ThreadPoolExecutor(1) as beside:
        runs = [(program, first.submit(run, program)) for program in urgent]
        runs += [(program, beside.submit(run, program, NICENESS)) for program in others]
    failed = [(program, future.result()) for program, future in runs]
    failed += [(program, run(program)) for program in chosen if program[0] in LAST]
    passed = [tests == [] or tests is not None and passes_alone(program, tests) for program, tests in failed]
    sys.exit(0 if all(passed) else 1)


main()
