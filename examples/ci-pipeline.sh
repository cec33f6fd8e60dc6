#!/usr/bin/env bash
# A CI job that runs its tests through a proxy VM of its own, and leaves none behind.
#
#   examples/ci-pipeline.sh curl -fsS https://example.com/
#
# The command gets http_proxy and https_proxy. If the job is killed before it can clean up, the VM's time to live
# runs out and `egressctl gc` deletes it.
set -euo pipefail

image=${PROXY_IMAGE:-debian-13}
user_data=${PROXY_USER_DATA:-$(dirname "$0")/cloud-init/squid.yaml}
port=${PROXY_PORT:-3128}

if [ $# -eq 0 ]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi

# The same job, retried, is the same VM: a create that was interrupted is continued.
uid=${CI_JOB_ID:-$(cat /proc/sys/kernel/random/uuid)}

# The host with the image cached and most room, unless the job wants a certain one.
zone=${PROXY_ZONE:-auto}

# 4 is "try again later"; everything else won't get better by waiting.
create() {
  local try status made
  for try in 1 2 3; do
    status=0
    made=$(egressctl create --zone "$zone" --image "$image" --user-data "$user_data" --uid "$uid" \
      --ttl 2h --label "ci-job=$uid" --wait="port:$port" --timeout 10m -o name) || status=$?
    if [ "$status" -ne 4 ] || [ "$try" -eq 3 ]; then
      # Also of a VM that was made, and isn't ready: it has to be cleaned up.
      echo "$made"
      return "$status"
    fi
    sleep $((try * 10))
  done
}

name=

# Runs at every end but SIGKILL.
cleanup() {
  local status=$?
  trap - EXIT
  if [ -z "$name" ]; then
    # create may have been ended after it had made the VM.
    name=$(egressctl list --selector "ci-job=$uid" -o name) || true
  fi
  if [ -n "$name" ]; then
    # shellcheck disable=SC2086 # one word for each name
    egressctl delete $name >&2 || echo "left to egressctl gc: $name" >&2
  fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

name=$(create)
address=$(egressctl get "$name" -o columns=IP --no-headers)
case $address in *:*) address="[$address]" ;; esac

export http_proxy="http://$address:$port" https_proxy="http://$address:$port"
"$@"
