#!/bin/sh
# Go and Node.js for the connector tests. Quick when they are there; installs Debian's packages
# when they are not and we may (root, apt-get). Never fails the build: a test that lacks its tool
# says so itself, and fails under CI=true.
set -u

missing=""
command -v go >/dev/null 2>&1 || [ -x /usr/local/go/bin/go ] || missing="$missing golang-go"
command -v node >/dev/null 2>&1 || missing="$missing nodejs"
command -v npm >/dev/null 2>&1 || missing="$missing npm"
[ -z "$missing" ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "ensure_tools: missing:$missing (install them to run every connector test)" >&2
    exit 0
fi
echo "ensure_tools: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
{ apt-get update -q && apt-get install -q -y --no-install-recommends $missing; } >/dev/null 2>&1 ||
    echo "ensure_tools: could not install$missing" >&2
exit 0
