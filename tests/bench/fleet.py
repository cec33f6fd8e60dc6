"""Many hosts at once: list, check and gc over all of them beside one alone, near and far, one of them dead, and what is left
afterwards; and several hosts fed from one download."""
import glob, os, re, statistics, subprocess, threading, time

FLEET = 50
ALONE = 5  # hosts that are asked alone, too; the median counts
COMMANDS = (("list", ["list"]), ("check", ["check"]), ("gc --dry-run", ["gc", "--dry-run"]))
DIAL_LIMIT = 10  # seconds, what a host without a cable costs
AWAY = 100  # ms there and back, for a fleet whose waits aren't the processors'
SEVERAL = 4  # hosts fed from one download
NARROW = 160  # Mbit/s of each one's own link: all together far less than the processors can do


class Watch(threading.Thread):
    """The most threads and sockets that a running process had; looks every few milliseconds."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.threads, self.sockets = pid, 0, 0
        self.start()

    def run(self):
        try:
            while True:
                self.threads = max(self.threads, len(os.listdir(f"/proc/{self.pid}/task")))
                self.sockets = max(self.sockets, sum(map(self.is_socket, glob.glob(f"/proc/{self.pid}/fd/*"))))
                time.sleep(0.005)
        except OSError:
            pass  # it has ended

    @staticmethod
    def is_socket(fd):
        try:
            return os.readlink(fd).startswith("socket:")
        except OSError:
            return False


class Fleet:
    """The part of a Bench that is about many hosts."""

    def fleet(self):
        free = self.available()
        subprocess.run([self.LAB, "up", str(FLEET)], env=self.env, check=True, stdout=subprocess.DEVNULL)
        host = (free - self.available()) / (FLEET - 1)  # one was there already
        hosts = [f"nas{n}" for n in range(1, FLEET + 1)]
        alone = [self.config_of([name]) for name in hosts[:ALONE]]
        every = self.config_of(hosts)
        for _, command in COMMANDS:
            self.watched(every, command)  # a daemon's first answer is slow: it asks QEMU what it can
        self.beside(alone, every)
        self.lab_note(f"A lab's host takes {host:.0f} MiB here before it is asked anything.")
        self.dead(every)
        self.leftovers(hosts)
        for name in hosts:
            self.move(name, AWAY / 2)
        self.beside([self.config_of([name], AWAY) for name in hosts[:ALONE]], self.config_of(hosts, AWAY), f", {AWAY} ms away")
        for name in hosts:
            subprocess.run([self.LAB, "fast", name], env=self.env, check=True)

    def move(self, host, *link):
        subprocess.run([self.LAB, "slow", host, *map(str, link)], env=self.env, check=True, stdout=subprocess.DEVNULL)

    def beside(self, alone, every, where=""):
        """All hosts beside one alone."""
        for name, command in COMMANDS:
            one = statistics.median(self.watched(config, command)[0] for config in alone * self.runs)
            runs = [self.watched(every, command) for _ in range(self.runs)]
            self.fleet_rows.append((name + where, one, statistics.median(run[0] for run in runs),
                                    statistics.median(run[1] for run in runs), max(run[2] for run in runs),
                                    max(run[3].threads for run in runs), max(run[3].sockets for run in runs)))
            print("{}: {:.2f} s alone, {:.2f} s all ({:.2f} s CPU), {:.0f} MiB, {} threads, {} sockets".format(*self.fleet_rows[-1]), flush=True)

    def dead(self, every):
        """One cable cut: the others' rows are complete, and the limit is paid once."""
        subprocess.run([self.LAB, "cut", "nas1"], env=self.env, check=True)
        try:
            seconds = self.watched(every, ["list"], status=4)[0]
        finally:
            subprocess.run([self.LAB, "heal", "nas1"], env=self.env, check=True)
        self.lab_note(f"With one host's cable cut, list takes {seconds:.1f} s: {DIAL_LIMIT} s are the limit of a dial, the other hosts' answers "
                      "are there before, and all is shown at the end.")

    def leftovers(self, hosts):
        time.sleep(1)
        sessions = [int(subprocess.run([self.LAB, "exec", host, "pgrep", "-c", "-f", "^sshd[-a-z]*: virt"], env=self.env,
                                       capture_output=True, text=True).stdout) for host in hosts[:ALONE]]
        sockets = glob.glob(f"{self.scratch}/egressctl-*")
        self.lab_note(f"A second after the last command {sum(sessions)} sessions were left on {ALONE} hosts that were looked at, "
                      f"and {len(sockets)} private directories here.")

    def several(self):
        """One download to hosts whose links are narrow, beside each of them alone."""
        subprocess.run([self.LAB, "up", str(SEVERAL)], env=self.env, check=True, stdout=subprocess.DEVNULL)
        hosts = [f"nas{n}" for n in range(1, SEVERAL + 1)]
        for name in hosts:
            self.move(name, 1, NARROW)
        pull = lambda names: self.pull_anew(self.config_of(names, NARROW), hosts)
        slowest = max(statistics.median(pull([name]) for _ in range(self.runs)) for name in hosts)
        together = statistics.median(pull(hosts) for _ in range(self.runs))
        self.figures.append(f"One download to {SEVERAL} hosts, each behind {NARROW} Mbit/s of its own: {together:.2f} s, the slowest of them alone "
                            f"{slowest:.2f} s: {together / slowest:.2f} (goal ≤ 1.15).")
        print(self.figures[-1], flush=True)
        for name in hosts:
            subprocess.run([self.LAB, "fast", name], env=self.env, check=True)

    def pull_anew(self, config, hosts):
        for host in hosts:
            subprocess.run([self.LAB, "exec", host, "sh", "-c", "rm -f /var/lib/libvirt/images/base-*; virsh -q pool-refresh default"],
                           env=self.env, check=True, stdout=subprocess.DEVNULL)
        return self.ours("--config", str(config), "image", "pull", "debian-13")[0]

    def config_of(self, hosts, link=None):
        """A configuration with these of the lab's hosts, the way there as it is, or by the relay."""
        path = self.scratch / f"providers-{hosts[0]}-{len(hosts)}-{link or 'near'}.yaml"
        lines = (self.directory / "providers-slow.yaml" if link else self.config).read_text().splitlines(keepends=True)
        ours = lambda line: not (found := re.match(r"\s*- \{name: (\w+),", line)) or found.group(1) in hosts
        path.write_text("".join(filter(ours, lines)))
        return path

    def watched(self, config, command, status=0):
        """Run it; return (seconds, CPU seconds, peak MiB, Watch)."""
        begin = time.monotonic()
        child = subprocess.Popen([self.EGRESSCTL, "-q", "--config", str(config), *command],
                                 env=dict(self.env, TMPDIR=str(self.scratch)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        watch = Watch(child.pid)
        errors = child.stderr.read()
        _, ended, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - begin
        child.returncode = os.waitstatus_to_exitcode(ended)
        if child.returncode != status:
            raise SystemExit(f"bench: {command} ended with {child.returncode}:\n{errors.decode()}")
        watch.join()
        return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, watch

    @staticmethod
    def available():
        """MiB of memory that this machine has left."""
        return int(re.search(r"MemAvailable:\s+(\d+)", open("/proc/meminfo").read()).group(1)) / 1024

    def lab_note(self, text):
        self.fleet_notes.append(text)
        print(text, flush=True)

    def fleet_table(self):
        lines = [f"{FLEET} hosts, each with an sshd and a libvirtd of its own, on the client's own {os.cpu_count()} processors; medians of {self.runs} runs.", "",
                 "| what | one host alone | all | ratio | goal | client's CPU | peak memory | threads | sockets |", "|---|---|---|---|---|---|---|---|---|"]
        lines += [f"| {name} | {one:.2f} s | {every:.2f} s | {every / one:.1f} | ≤ 1.3 with processors enough | {cpu:.2f} s | {memory:.0f} MiB | {threads} | {sockets} |"
                  for name, one, every, cpu, memory, threads, sockets in self.fleet_rows]
        return "\n".join(lines + [""] + self.fleet_notes)
