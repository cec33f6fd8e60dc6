"""A host some way off: an image's way there and short commands, beside scp and virsh over the same way."""
import re, statistics, subprocess

UPLOADS = ((0, 0.9, 1.0), (30, 2.0, 2.4), (100, 2.8, 2.8))  # round trip in ms, times as fast as scp and as virsh vol-upload
PIPELINE = 2.5  # times as fast as all that a user would run for a pull, at any distance
SHORT_MS = 30
LARGE = 256 << 20  # bytes; what the goals were set for


class Far:
    """The part of a Bench that is about distance."""

    def far(self):
        large = self.publish_large()
        for round_trip, *goals in UPLOADS:
            config, host, uri = self.move_away(round_trip)
            self.add_image(config[1], large)
            for key, url in (("debian-13", self.url), ("large", large["url"])):
                self.upload(key, url, round_trip, goals, config, host, uri)
        (self.directory / "www/large.raw").unlink()
        self.short(*self.move_away(SHORT_MS))
        subprocess.run([self.LAB, "fast", "nas1"], env=self.env, check=True)

    def publish_large(self):
        """A raw disk that can't be compressed, on the image server. Made elsewhere: a child's peak memory begins with ours."""
        file = self.directory / "www/large.raw"
        signature = f"printf '\\125\\252' | dd of={file} bs=1 seek=510 conv=notrunc status=none"  # a boot sector's
        sha256 = self.shell_output(f"head -c {LARGE} /dev/urandom > {file}; {signature}; sha256sum < {file}")
        return {"url": self.url.replace("debian-13.qcow2", "large.raw"), "sha256": sha256.split()[0]}

    def add_image(self, config, large):
        with open(config) as file:
            text = file.read()
        image = '      large: {url: "%(url)s", sha256: "%(sha256)s", format: raw, firmware: bios}\n' % large
        with open(config, "w") as file:
            file.write(text.replace("    images:\n", "    images:\n" + image, 1))

    def upload(self, key, url, round_trip, goals, config, host, uri):
        size = int(self.shell_output(f"curl -sSf -o $W/image {url}; stat -c %s $W/image"))
        scp, virsh, pipeline = "scp", "virsh vol-upload", "curl, sha256sum, virsh vol-create-as, vol-upload"
        before = (f'curl -sSf -o $W/image {url}; sha256sum $W/image > $W/sum; '
                  f'virsh -q -c "{uri}" vol-create-as default peer.qcow2 {size} --format raw')
        scripts = {scp: f"scp -O -q -S {self.scratch}/ssh {host[1]} $W/image virt@{host[0]}:/tmp/peer",
                   virsh: f'virsh -q -c "{uri}" vol-upload --pool default peer.qcow2 $W/image'}
        ours, theirs = [], {scp: [], virsh: [], pipeline: []}
        for _ in range(self.runs):
            self.empty_pool()
            ours.append(self.ours(*config, "image", "pull", key))
            self.empty_pool()
            prepared = self.shell(before)[0]
            for name, script in scripts.items():
                theirs[name].append(self.shell(script)[0])
            theirs[pipeline].append(prepared + theirs[virsh][-1])
            self.host("rm -f /tmp/peer")
        self.empty_pool()
        for name, goal in zip(theirs, [*goals, PIPELINE]):
            self.distant(f"image pull, {size >> 20} MiB", round_trip, ours, name, theirs[name], f"≤ {1 / goal:.2f}")

    def move_away(self, round_trip):
        """Put nas1 so many milliseconds away; the configuration, host and libvirt URI that go there."""
        if not round_trip:
            return ["--config", str(self.config)], (self.address, ""), self.uri
        subprocess.run([self.LAB, "slow", "nas1", str(round_trip / 2)], env=self.env, check=True)
        text = (self.directory / "providers-slow.yaml").read_text()
        address, port = re.search(r'address: "?([0-9.]+):(\d+)', text).groups()
        uri = self.uri.replace(self.address, f"{address}:{port}")
        return ["--config", str(self.directory / "providers-slow.yaml")], (address, f"-P {port}"), uri

    def short(self, config, _host, uri):
        ours, theirs = [], []
        for _ in range(self.runs):
            ours.append(self.ours(*config, "list"))
            theirs.append(self.shell(f'virsh -c "{uri}" list --all')[0])
        self.distant("list", SHORT_MS, ours, "virsh list --all", theirs, "≤ 0.6")
        self.empty_pool()
        self.ours("image", "pull", "debian-13")
        ours, theirs = [], []
        for _ in range(self.runs):
            self.empty_instances()
            ours.append(self.ours(*config, "create", "--image", "debian-13", "--name", "ours", "--zone", "nas1"))
            self.empty_instances()
            theirs.append(self.shell(self.virt_install(uri))[0])
        self.empty_instances()
        self.distant("create, image cached", SHORT_MS, ours, "virsh vol-create-as, virt-install", theirs, "≤ 0.4")

    def distant(self, what, round_trip, ours, peer, theirs, goal):
        mine, others = statistics.median(seconds for seconds, _ in ours), statistics.median(theirs)
        peak = max(rss for _, rss in ours) / 1024
        self.distances.append((what, round_trip, mine, others, peer, mine / others, goal, peak))
        print("{} ({} ms): {:.2f} s, {:.2f} s ({}): {:.2f} (goal {}), {:.0f} MiB".format(*self.distances[-1]), flush=True)

    def far_table(self):
        lines = [f"Medians of {self.runs} runs, in turn. The pull downloads from a server nearby and verifies; scp and vol-upload alone only send.", "",
                 "| what | round trip | egressctl | the other way | ratio | goal | peak memory |", "|---|---|---|---|---|---|---|"]
        lines += [f"| {what} | {f'{ms} ms' if ms else 'LAN'} | {mine:.2f} s | {others:.2f} s ({peer}) | {ratio:.2f} | {goal} | {peak:.0f} MiB |"
                  for what, ms, mine, others, peer, ratio, goal, peak in self.distances]
        return "\n".join(lines)
