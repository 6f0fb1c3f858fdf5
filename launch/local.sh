#!/usr/bin/env bash
# Runs one command of posenc_jax on this machine; see --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: launch/local.sh [--dry-run] COMMAND ...

Runs `python -m posenc_jax COMMAND ...` with the repository's .venv, which is made first where it is missing.

  --dry-run   print what would be done, and do nothing
  RESTART=1   run the command again as long as it ends with exit code 75 (interrupted, everything saved)
  PYTHON=...  the interpreter .venv is made from (python3)

  RESTART=1 launch/local.sh pretrain --config configs/tupe.py:tupe_r,tiny --data out/rows --workdir out/run
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
preempted=75
dry_run=0
case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  --dry-run) dry_run=1; shift ;;
esac
if [ $# -eq 0 ]; then
  usage >&2
  exit 2
fi

install=(make -C "$root" .venv/.runtime)
command=("$root/.venv/bin/python" -m posenc_jax "$@")
if [ "$dry_run" = 1 ]; then
  [ -e "$root/.venv/.runtime" ] || printf '%s\n' "${install[*]@Q}"
  printf '%s\n' "${command[*]@Q}"
  [ "${RESTART:-0}" != 1 ] || echo "# again while it ends with exit code $preempted"
  exit 0
fi

[ -e "$root/.venv/.runtime" ] || "${install[@]}"
[ "${RESTART:-0}" = 1 ] || exec "${command[@]}"

# Ctrl-C and SIGTERM reach the command as SIGTERM, and are the end of it: nothing is restarted after them.
stop=0
child=
trap 'stop=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true' INT TERM
while true; do
  "${command[@]}" &
  child=$!
  code=0
  wait "$child" || code=$?
  while kill -0 "$child" 2>/dev/null; do # the signal ended `wait`, not the command
    code=0
    wait "$child" || code=$?
  done
  if [ "$code" != "$preempted" ] || [ "$stop" = 1 ]; then
    exit "$code"
  fi
  echo "ended with exit code $preempted; running the same line again" >&2
done
