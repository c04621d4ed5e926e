#!/bin/sh
# Train on today's tables within a budget, and let the service have the new release. For cron and systemd.
# A run that was interrupted goes on; one that is finished is not made again; a lock keeps out a second caller.
set -eu
DATA=${DATA:-/srv/people}
HOME_OF_RUNS=${HOME_OF_RUNS:-/var/lib/hushgraph}
EPSILON=${EPSILON:-2}
RUN=$HOME_OF_RUNS/run-$(date +%Y-%m)

cd "$HOME_OF_RUNS"
exec 9> retrain.lock
flock -n 9 || { echo "retrain: another one is running" >&2; exit 1; }
if [ ! -e "$RUN" ]; then
  hushgraph train "$DATA" --epsilon "$EPSILON" --budget year.ledger --out "$RUN" --quiet
elif [ ! -e "$RUN/release" ]; then
  hushgraph train "$DATA" --resume "$RUN" --quiet
fi
ln -sfn "$RUN" current.new
mv -T current.new current
