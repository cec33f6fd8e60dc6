#!/bin/sh
# Deletes every instance that no Proxy object of the cluster stands for; for cron, where kubectl and egressctl both work.
#
#   gc-from-kubernetes.sh [OPTION...]      options of egressctl gc, such as --dry-run
#
# The list is complete or nothing happens: a pipe from kubectl would hide its failure, and half a list is a list, too. An
# empty one is refused by gc itself, unless --keep-none says that it is meant.
set -eu

# One uid a line.
uids=$(kubectl get proxies --all-namespaces \
  -o jsonpath='{range .items[*]}{.metadata.uid}{"\n"}{end}')

printf '%s\n' "$uids" | egressctl gc --quiet --keep - "$@"
