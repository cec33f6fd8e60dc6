#!/bin/sh
# Installs qemu-guest-agent if it is missing, and starts it: by it the hypervisor
# learns this machine's addresses. cloud-init runs this once, on the first boot.

installed() {
    command -v qemu-ga >/dev/null 2>&1 ||
        [ -x /usr/sbin/qemu-ga ] || [ -x /usr/bin/qemu-ga ]
}

have() { command -v "$1" >/dev/null 2>&1; }

# apt's lock may be held by the first boot's unattended upgrades.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"; }

install_once() {
    if have apt-get; then
        apt update && apt --no-install-recommends install qemu-guest-agent
    elif have dnf; then
        dnf -q -y install qemu-guest-agent
    elif have yum; then
        yum -q -y install qemu-guest-agent
    elif have zypper; then
        zypper -n -q install qemu-guest-agent
    elif have apk; then
        apk add -q qemu-guest-agent
    elif have pacman; then
        pacman -Sy --noconfirm --needed qemu-guest-agent
    else
        echo "egressctl: no known package manager" >&2
        try=10
    fi
}

install() {
    try=1
    while :; do
        install_once </dev/null
        installed && return 0
        [ "$try" -lt 10 ] || break
        # Network and package locks come and go while a machine boots.
        sleep $((try * 3))
        try=$((try + 1))
    done
    echo "egressctl: qemu-guest-agent could not be installed" >&2
    return 1
}

start() {
    if have systemctl && [ -d /run/systemd/system ]; then
        # Some distributions start the unit by udev and can't enable it. Without
        # --no-block a missing channel device would hold this up for 90 s.
        systemctl enable qemu-guest-agent >/dev/null 2>&1
        systemctl start --no-block qemu-guest-agent
    elif have rc-service; then
        rc-update add qemu-guest-agent default >/dev/null 2>&1
        rc-service -q qemu-guest-agent start
    elif have service; then
        service qemu-guest-agent start
    else
        qemu-ga -d
    fi
}

installed || install || exit 1
start
