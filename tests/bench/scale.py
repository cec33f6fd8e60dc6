"""A host with many domains and volumes, definitions only, and what list and gc take there: on a LAN and over distance."""
import re, statistics, subprocess

DOMAINS, VOLUMES = 1000, 3000
FEWER = 200  # domains that a first list meets
EXPIRED, ORPHANED = 10, 50  # what gc --min-age 0s finds there: instances, and pairs of overlay and seed
ROUND_TRIP_MS = 30
FIRST = "scale-0000"  # a real instance; the others are copies of it, with names of the same length


class Scale:
    """The part of a Bench that is about large hosts."""

    def scale(self):
        self.peers, names = {}, self.fill()
        subprocess.run([self.LAB, "slow", "nas1", str(ROUND_TRIP_MS / 2)], env=self.env, check=True)
        text = (self.directory / "providers-slow.yaml").read_text()
        address, port = re.search(r'address: "?([0-9.]+):(\d+)', text).groups()
        far = ["--config", str(self.directory / "providers-slow.yaml")]
        self.links = (("LAN", [], self.uri), (f"{ROUND_TRIP_MS} ms", far, self.uri.replace(self.address, f"{address}:{port}")))
        self.define(names[:FEWER - 1])
        self.measure_scale(f"list, of {FEWER} domains only", ["list"], "virsh list --all", (None, 1))
        self.define(names[FEWER - 1:DOMAINS - 1])
        both = "virsh list --all, vol-list"
        self.measure_scale("list", ["list"], "virsh list --all", (0.4, 2.5))
        self.measure_scale("gc, nothing to do", ["gc"], both, (2, 5))
        self.measure_scale("gc --dry-run, 110 things to delete", ["gc", "--dry-run", "--min-age", "0s"], both, (2, 5))
        self.measure_scale("image list", ["image", "list"], "virsh vol-list", (2, 5))
        seconds, rss = self.ours("gc", "--min-age", "0s")
        self.large_notes.append(f"The gc that deletes them, {EXPIRED} instances and the overlay and seed of {ORPHANED} others, "
                                f"each looked at again right before: {seconds:.1f} s, {rss / 1024:.0f} MiB.")
        print(self.large_notes[-1], flush=True)

    def measure_scale(self, name, command, peer, goals):
        for (at, config, uri), goal in zip(self.links, goals):
            runs = [self.ours(*config, *command) for _ in range(self.runs)]
            key = peer, at, name if command == ["list"] else None  # as many domains as then
            if key not in self.peers:
                self.peers[key] = self.peer(peer, uri)
            self.large.append((name, at, statistics.median(seconds for seconds, _ in runs), f"≤ {goal} s" if goal else "",
                               peer, self.peers[key], max(rss for _, rss in runs) / 1024))
            print("{} ({}): {:.2f} s ({}), {} {:.1f} s, {:.0f} MiB".format(*self.large[-1]), flush=True)

    def peer(self, commands, uri):
        """virsh's commands in one session, once: over distance they take minutes."""
        script = "; ".join(command.strip().replace("virsh ", "").replace("vol-list", "vol-list default")
                           for command in commands.split(","))
        return self.shell(f'virsh -q -c "{uri}" "{script}"')[0]

    def fill(self):
        """Put what DOMAINS domains need on the host, overlay and seed each, leftovers, and other people's files up to VOLUMES.
        The names of those that are to be defined come first in the answer."""
        self.ours("image", "pull", "tiny")
        self.ours("create", "--zone", "nas1", "--image", "tiny", "--machine-type", "small", "--name", FIRST, "--ttl", "5h")
        self.host(f"virsh -q destroy {FIRST}; mkdir -p /var/lib/libvirt/scale")
        pool, definitions = self.directory / "nas1/lib/images", self.directory / "nas1/lib/scale"
        xml = subprocess.run([self.LAB, "exec", "nas1", "virsh", "-q", "dumpxml", "--inactive", FIRST],
                             env=self.env, check=True, capture_output=True, text=True).stdout
        xml = re.sub(r"\s*<(uuid>.*?</uuid>|mac [^>]*>|nvram.*?</nvram>)", "", xml)
        seed, overlay = ((pool / f"{FIRST}{end}").read_bytes() for end in ("-seed.iso", ".qcow2"))
        names = [f"scale-{n:04}" for n in range(1, DOMAINS + ORPHANED)]
        for n, name in enumerate(names, 1):
            (pool / f"{name}-seed.iso").write_bytes(seed.replace(FIRST.encode(), name.encode()))
            (pool / f"{name}.qcow2").write_bytes(overlay)
            if n < DOMAINS:
                own = re.sub(r"(expiresAt>)\d{4}", r"\g<1>2001", xml) if n <= EXPIRED else xml
                (definitions / f"{name}.xml").write_text(own.replace(FIRST, name))
        for n in range(VOLUMES - sum(1 for _ in pool.iterdir())):
            (pool / f"others-{n:04}.img").write_bytes(b"\0" * 4096)
        self.host("virsh -q pool-refresh default")
        return names

    def define(self, names):
        script = "".join(f"define /var/lib/libvirt/scale/{name}.xml\n" for name in names)
        (self.directory / "nas1/lib/scale/script").write_text(script)
        self.host("virsh -q < /var/lib/libvirt/scale/script >/dev/null")

    def large_table(self):
        lines = [f"{DOMAINS} domains and {VOLUMES} volumes on one host. egressctl: medians of {self.runs} runs; virsh: one run each.", "",
                 "| what | link | egressctl | goal | virsh | ratio | peak memory |", "|---|---|---|---|---|---|---|"]
        lines += [f"| {name} | {at} | {ours:.2f} s | {goal} | {theirs:.1f} s ({peer}) | {ours / theirs:.2f} | {memory:.0f} MiB |"
                  for name, at, ours, goal, peer, theirs, memory in self.large]
        return "\n".join(lines + [""] + self.large_notes)
