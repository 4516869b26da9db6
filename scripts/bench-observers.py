#!/usr/bin/env python3
"""Measures what watching a switch costs it: rates with a watcher, over rates without one right before and after.

usage: bench-observers.py [--turns N] [--seconds S] [--json FILE]

A patch switch on one CPU moves frames of 64 bytes from a sender to a receiver that share another. Each turn has a
window without a watcher before and after each window with one. Rates of a virtual machine vary by more than a
watcher costs, so the CPU time is measured as well, of the watcher and of all threads of the switch but its worker:

scrape    metrics are asked for once a second
top       `dray top` on a terminal of 160 by 48
capture   `dray capture --all` to a file in memory
filter    `dray capture` of what a filter keeps, which is nothing
"""
import argparse
import json
import os
import pty
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

DRAY = Path(__file__).resolve().parent.parent / "target/release/dray"


def ask(control, path):
    """Returns the body of the reply of the switch."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(control)
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        reply = b"".join(iter(lambda: stream.recv(65536), b""))
    return reply.split(b"\r\n\r\n", 1)[1]


class Scrape:
    pid = None

    def __init__(self, control, folder):
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, args=[control])
        self.thread.start()

    def run(self, control):
        while not self.ended.wait(1):
            assert b"dray_" in ask(control, "/metrics")

    def stop(self):
        self.ended.set()
        self.thread.join()


class Top:
    def __init__(self, control, folder):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.environ.update(TERM="xterm-256color", COLUMNS="160", LINES="48")
            os.execv(DRAY, ["dray", "top", "--control", control])
        self.pid = self.child
        import fcntl, struct, termios
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 48, 160, 0, 0))
        self.thread = threading.Thread(target=self.read)
        self.drawn = 0
        self.thread.start()

    def read(self):
        try:
            while read := os.read(self.terminal, 65536):
                self.drawn += len(read)
        except OSError:
            pass

    def stop(self):
        os.write(self.terminal, b"q")
        os.waitpid(self.child, 0)
        self.thread.join()
        os.close(self.terminal)
        assert self.drawn > 1000, "dray top drew nothing"


class Capture:
    MORE = []

    def __init__(self, control, folder):
        self.file = folder + "/capture.pcapng"
        command = [DRAY, "capture", "--control", control, "--all", "-w", self.file, *self.MORE]
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def stop(self):
        self.process.send_signal(2)
        said = self.process.communicate()[1]
        self.seconds = time.monotonic() - self.began
        os.unlink(self.file)
        words = said.split()
        assert words[0] == "captured", said
        self.captured = int(words[1])


class Filter(Capture):
    MORE = ["--filter", "tcp port 1"]


def cpu_of(stat):
    """Returns the CPU time of a process or thread, in seconds."""
    fields = Path(stat).read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


WATCHERS = {"scrape": Scrape, "top": Top, "capture": Capture, "filter": Filter}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--watchers", default=",".join(WATCHERS))
    parser.add_argument("--json")
    options = parser.parse_args()
    # A file in memory.
    folder = tempfile.mkdtemp(dir="/dev/shm")
    control, a, b = (f"{folder}/{name}" for name in ["control", "a", "b"])
    children = []

    def start(*words):
        children.append(subprocess.Popen([DRAY, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    try:
        start("switch", "--control", control, "--cpus", "0", "--mode", "patch", f"a=vhost:{a}", f"b=vhost:{b}")
        while not (os.path.exists(a) and os.path.exists(b)):
            time.sleep(0.01)
        start("receive", "--port", f"virtio:{b}?wait=poll", "--cpu", "1", "-i", "0")
        start("send", "--port", f"virtio:{a}?wait=poll", "--cpu", "1", "-i", "0")
        time.sleep(2)

        def sent():
            ports = {port["name"]: port for port in json.loads(ask(control, "/stats"))}
            return ports["b"]["tx_frames"]

        pid = children[0].pid
        tasks = [task for task in Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().startswith("dray-worker")]

        def watching(watcher):
            """Returns the CPU time of what is not the worker."""
            own = cpu_of(f"/proc/{watcher.pid}/stat") if watcher and watcher.pid else 0
            return own + cpu_of(f"/proc/{pid}/stat") - cpu_of(tasks[0] / "stat")

        def window(watcher=None):
            """Returns the rate in Mpps, and the share of a CPU that is not the worker's."""
            time.sleep(0.3)
            first, used, began = sent(), watching(watcher), time.monotonic()
            time.sleep(options.seconds)
            used, last = watching(watcher) - used, sent()
            seconds = time.monotonic() - began
            return (last - first) / seconds / 1e6, used / seconds

        results = {name: {"without": [], "with": [], "ratio": [], "cpu": []} for name in options.watchers.split(",")}
        before, _ = window()
        for turn in range(options.turns):
            for name, result in results.items():
                watcher = WATCHERS[name](control, folder)
                during, cpu = window(watcher)
                watcher.stop()
                after, _ = window()
                result["without"].append(before)
                result["with"].append(during)
                result["cpu"].append(cpu)
                result["ratio"].append(during / ((before + after) / 2))
                if name == "capture":
                    captured = watcher.captured / watcher.seconds / 1e6
                    result.setdefault("captured", []).append(captured)
                print(f"{turn + 1}: {name:8} {before:6.2f} {during:6.2f} {after:6.2f} Mpps", file=sys.stderr)
                before = after
        print("watcher   without     with    ratio  quartiles       CPU %  windows")
        for name, result in results.items():
            low, middle, high = statistics.quantiles(result["ratio"], n=4) if options.turns > 1 else result["ratio"] * 3
            without, during = (statistics.median(result[key]) for key in ["without", "with"])
            cpu = 100 * statistics.mean(result["cpu"])
            line = f"{name:8} {without:8.2f} {during:8.2f} {middle:8.4f}  {low:.4f}-{high:.4f} {cpu:6.2f} {options.turns:8}"
            if "captured" in result:
                line += f"   {statistics.median(result['captured']):.2f} Mpps captured"
            print(line)
        if options.json:
            Path(options.json).write_text(json.dumps(results, indent=1))
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait()
        shutil.rmtree(folder)


main()
