"""Legs: programs that run one after the other, each under a timeout, all within a time that is given."""

import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import time

SKIPPED = 77  # the exit status of a program, and of a suite, that needs a GPU where there is none
FIGURE = re.compile(r"figure: (\S+) = ([\d.]+) (\S+)(?: \((.*)\))?")
PASSED, FAILED, SKIP, NOT_RUN = "passed", "FAILED", "skipped", "not run"
TAIL_LINES = 40
OPTIONAL = "optional/"  # legs whose names begin so may be left out, or not end in time; an error of theirs is one


class Legs:
    def __init__(self, kind, folder, total_s, environment, only=()):
        """`only`: words of which a leg has one in its name, or is not one of this run; none: every leg is."""
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.environment = environment
        self.end = time.monotonic() + total_s
        self.kind = kind
        self.only = only
        self.date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        self.legs = []
        self.figures = {}

    def left_s(self):
        return self.end - time.monotonic()

    def _wants(self, name):
        return not self.only or any(word in name for word in self.only)

    def note(self, name, status, why):
        """Adds a leg that is not run."""
        if not self._wants(name):
            return
        self.legs.append({"name": name, "status": status, "why": why, "seconds": 0})
        print(f"{status:8} {name}: {why}", flush=True)

    def run(self, name, command, timeout_s, slow_is_failure=True, environment=None, suffix=""):
        """Runs a command, whose output goes to a file of its own; returns the output. `suffix`: of the figures' names."""
        if not self._wants(name):
            return ""
        limit = min(timeout_s, self.left_s())
        if limit < 5:
            self.note(name, NOT_RUN, "no time was left")
            return ""
        log = self.folder / (re.sub(r"\W+", "_", name) + ".txt")
        begin = time.monotonic()
        with log.open("w") as file:
            leg = self._outcome(command, limit, file, environment or self.environment)
        text = log.read_text(errors="replace")
        if leg["status"] == NOT_RUN and slow_is_failure and limit == timeout_s:
            leg["status"] = FAILED
        leg = {"name": name, **leg, "seconds": round(time.monotonic() - begin, 1), "log": log.name,
               "tail": text.splitlines()[-TAIL_LINES:]}
        self.legs.append(leg)
        for figure, value, unit, more in FIGURE.findall(text):
            self.figures[figure + suffix] = {"value": float(value), "unit": unit, **({"more": more} if more else {})}
        print(f"{leg['status']:8} {name} after {leg['seconds']} s{': ' + leg['why'] if leg.get('why') else ''}", flush=True)
        return text

    def _outcome(self, command, limit, file, environment):
        try:
            # A session of its own, so that the ranks that a program has started end with it.
            process = subprocess.Popen([str(part) for part in command], env=environment, stdin=subprocess.DEVNULL,
                                       stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            return {"status": FAILED, "why": str(error)}
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return {"status": NOT_RUN, "why": f"not ended after {limit:.0f} s, and killed"}
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        if code == SKIPPED:
            return {"status": SKIP, "why": "the program says that something is missing"}
        return {"status": PASSED if code == 0 else FAILED, **({"why": f"exit status {code}"} if code else {})}

    def finish(self, machine, bundle, has_gpu):
        """Writes KIND.json and KIND.txt, prints the latter, and returns the exit status of the whole."""
        bad = [leg for leg in self.legs if leg["status"] == FAILED or (
            leg["status"] == NOT_RUN or (has_gpu and leg["status"] == SKIP)) and not leg["name"].startswith(OPTIONAL)]
        code = 1 if bad else 0 if has_gpu else SKIPPED
        results = {"kind": self.kind, "date": self.date, "exit": code, "has_gpu": has_gpu, "machine": machine,
                   "bundle": bundle, "legs": self.legs, "figures": self.figures}
        (self.folder / f"{self.kind}.json").write_text(json.dumps(results, indent=1) + "\n")
        lines = [f"{self.kind}, {self.date}"] + [f"{field}: {text}" for field, text in machine.items()]
        lines += [f"{leg['status']:8} {leg['name']} {leg['seconds']} s {leg.get('why', '')}".rstrip() for leg in self.legs]
        lines += [f"{name} = {figure['value']} {figure['unit']} {figure.get('more', '')}".rstrip()
                  for name, figure in self.figures.items()]
        lines.append({0: "all passed", 1: f"{len(bad)} of {len(self.legs)} legs have not passed",
                      SKIPPED: "no GPU: only what needs none was run, and has passed"}[code])
        (self.folder / f"{self.kind}.txt").write_text("\n".join(lines) + "\n")
        for leg in bad:
            print("\n    ".join([f"{leg['name']} ends with", *leg.get("tail", [])]))
        print("\n".join(lines[-1 - len(self.figures):]))
        return code
