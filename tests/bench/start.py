"""How long commands take that ask nobody: help, version, the shells' scripts; beside virsh, which loads the same libraries."""
import os, statistics, subprocess, time

ROUNDS = 40
GOAL_MS = 10
COMMANDS = (["--help"], ["--version"], ["completion", "bash"])


class Start:
    """The part of a Bench that is about start-up."""

    def start(self):
        empty = {"PATH": os.environ["PATH"], "HOME": str(self.scratch)}  # no configuration anywhere
        programs = [[str(self.EGRESSCTL), *command] for command in COMMANDS] + [["virsh", "--version"], ["/bin/true"]]
        times = [[] for _ in programs]
        for _ in range(ROUNDS):
            for program, taken in zip(programs, times):
                begin = time.monotonic()
                child = subprocess.Popen(program, env=empty, stdout=subprocess.DEVNULL)
                _, status, usage = os.wait4(child.pid, 0)
                taken.append((time.monotonic() - begin, usage.ru_utime + usage.ru_stime))
                child.returncode = os.waitstatus_to_exitcode(status)
                if child.returncode:
                    raise SystemExit(f"bench: {program} ended with {child.returncode}")
        for program, taken in zip(programs, times):
            name = " ".join([os.path.basename(program[0]), *program[1:]])
            seconds, cpu = (statistics.median(column) * 1000 for column in zip(*taken))
            self.starts.append((name, seconds, min(one for one, _ in taken) * 1000, cpu))
            print("{}: {:.1f} ms, {:.1f} ms at best, {:.1f} ms of CPU".format(*self.starts[-1]), flush=True)

    def start_table(self):
        lines = [f"{ROUNDS} runs each, in turn. The goal for egressctl is {GOAL_MS} ms.", "",
                 "| what | median | at best | CPU |", "|---|---|---|---|"]
        lines += [f"| {name} | {median:.1f} ms | {best:.1f} ms | {cpu:.1f} ms |" for name, median, best, cpu in self.starts]
        return "\n".join(lines)
