#!/usr/bin/env python3
"""Runs test programs, and prints what each wrote when it has ended.

usage: test-programs.py BUILT [GROUP...]

BUILT is a file with what `cargo build --message-format=json` wrote; a line that begins with `script: ` adds a script,
which runs as it is. A test whose path (program, modules, name) contains `with_GROUP` needs the programs of that group.
Without a GROUP, the tests run that need none; with GROUPs, those that need only these; with `all`, all tests.
Each module of an end-to-end program, and each other program, runs in a view of the machine of its own (alone.sh),
beside others. A program that runs for too long is ended, and its processes are listed.
Exits with 1 if a test, a program or a script fails.
"""
import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# scripts/setup.sh installs what each needs. The last one needs nothing but more than ten seconds of CPU time a test.
GROUPS = ["dpdk", "vm", "engines", "browser", "packages", "kubernetes", "tools", "time"]
# Modules of end-to-end programs run this many at a time, the longest first, since most wait most of the time; where
# those of groups run, too, they use more of the CPUs. All other programs run beside these, one at a time, with what is
# left of the CPUs.
AT_A_TIME = 4
AT_A_TIME_WITH_GROUPS = 3
LONGEST = [
    "with_vm", "lab::with_engines", "bench::rows", "scripts", "lab::with_dpdk", "lab::with_tools", "coverage",
    "switch::with_vm", "switch::offload", "switch::violations", "bench", "upf", "switch", "lab",
]
NICENESS = 10
# Programs that measure the machine itself, after all others.
LAST = ["dray_measure (unit tests)"]
# Seconds that a program may run: the longest takes five minutes.
LIMIT_S = 1200
ALONE = Path(__file__).with_name("alone.sh").resolve()


def groups(path):
    """Returns the names of the groups that a test needs."""
    return {group for group in GROUPS if re.search(rf"with_{group}(?![a-z])", path)}


def programs(built, chosen):
    """Returns the programs to run, each as its name, its command and its folder, and counts tests by what they need."""
    found, left_out = [], dict.fromkeys(GROUPS, 0)
    for line in Path(built).read_text().splitlines():
        if line.startswith("script: "):
            name, *arguments = line.removeprefix("script: ").split()
            found.append((f"scripts: {Path(name).name}", [Path(name).resolve(), *arguments], Path(name).parent))
            continue
        message = json.loads(line)
        if not (message.get("profile", {}).get("test") and message["executable"]):
            continue
        package = Path(message["manifest_path"]).parent
        target = message["target"]
        name = target["name"] if "test" in target["kind"] else f"{target['name']} (unit tests)"
        command = [ALONE, message["executable"]]
        listed = subprocess.run(
            [message["executable"], "--list", "--format", "terse"], stdout=subprocess.PIPE, text=True, check=True
        )
        parts = {}
        for test in re.findall(r"^(.*): test$", listed.stdout, re.M):
            # The driver for Kubernetes is a workspace of its own.
            needs = groups(f"{name}::{test}") | ({"kubernetes"} if package.name == "k8s" else set())
            if needs <= set(chosen) if needs else not chosen or chosen == GROUPS:
                module = test.split("::")[0] if "::" in test and package.name == "cli" else ""
                parts.setdefault(module, []).append(test)
            for group in needs - set(chosen):
                left_out[group] += 1
        for module, tests in sorted(parts.items()):
            label = f"{package.name}: {name}::{module}".removesuffix("::")
            found.append((label, [*command, "--exact", *tests], package))
    return found, left_out


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


def run(program, niceness=0):
    """Runs a program and prints what it wrote. Returns true if it succeeded."""
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
    sys.stdout.buffer.write(f"== {name}\n".encode() + written + "".join([*late, times]).encode())
    sys.stdout.flush()
    return child.returncode == 0


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip().splitlines()[2])
    built, *chosen = sys.argv[1:]
    chosen = GROUPS if chosen == ["all"] else chosen
    unknown = set(chosen) - set(GROUPS)
    if unknown:
        sys.exit(f"unknown group {' '.join(unknown)}: give all, or some of {' '.join(GROUPS)}")
    found, left_out = programs(built, chosen)
    if not found:
        sys.exit(f"{built}: no test programs")

    def rank(program):
        name = program[0].removeprefix("cli: ")
        return next((at for at, start in enumerate(LONGEST) if name.startswith(start)), len(LONGEST))

    last = [p for p in found if p[0].endswith(tuple(LAST))]
    urgent = sorted((p for p in found if p[0].startswith(("cli: ", "scripts: "))), key=rank)
    others = [p for p in found if p not in urgent + last]
    os.environ["DRAY_HUGEPAGES"] = Path("/proc/sys/vm/nr_hugepages").read_text()
    with ThreadPoolExecutor(AT_A_TIME_WITH_GROUPS if chosen else AT_A_TIME) as first, ThreadPoolExecutor(1) as beside:
        runs = [first.submit(run, program) for program in urgent]
        runs += [beside.submit(run, program, NICENESS) for program in others]
    passed = [future.result() for future in runs] + [run(program) for program in last]
    if not chosen or chosen == GROUPS:
        for group, count in left_out.items():
            if count:
                print(f"not run: {count:4} tests: make test-all GROUPS={group}")
    sys.exit(0 if all(passed) else 1)


main()
