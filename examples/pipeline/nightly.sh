#!/bin/sh
# A night's work, by cron:  10 3 * * *  nightly.sh DATA OUT [DAYS of history, unless 400]
#
# Each goes on where the last night's ended. The exit code is the audit's: 0 is sound, 1 is a broken
# rule. Cron mails what is printed, so a good night prints nothing: what was done is in OUT/log.
set -eu
data=$1 out=$2 days=${3-400}
mkdir -p "$out"
exec 9>"$out/lock"
flock -n 9 || { echo "the last run is not over yet" >&2; exit 75; }

{
    tandemq pipeline history "$data" --out "$out/history"
    tandemq pipeline keep "$out/history" --days "$days"
    tandemq pipeline report "$data" --history "$out/history" --out "$out/report"
} >"$out/log"
tandemq pipeline audit "$data" --state "$out/audit.state" --prometheus "$out/audit.prom" >"$out/verdict" ||
    { code=$?; cat "$out/verdict"; exit $code; }
