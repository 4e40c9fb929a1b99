#!/bin/sh
# run.sh DIRECTORY: the frameworks' own tests, from their source distributions, against these brokers.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python="$here/../../../.venv/bin/python"
mkdir -p "$1" && cd "$1"
[ -d dramatiq-2.2.1 ] && [ -d kombu-5.7.0 ] || {
    "$python" -m pip download -q --no-deps --no-binary :all: dramatiq==2.2.1 kombu==5.7.0
    for archive in *.tar.gz; do tar -xzf "$archive"; done
}
quiet="-q -p no:cacheprovider -c /dev/null --timeout 60"
cp "$here/kombu_tests.py" kombu-5.7.0/t/integration/test_tandemq.py
(cd kombu-5.7.0 && "$python" -m pytest $quiet --rootdir . t/integration/test_tandemq.py) || true
cp "$here/dramatiq_conftest.py" dramatiq-2.2.1/tests/conftest.py
cp "$here/dramatiq_common.py" dramatiq-2.2.1/tests/common.py
touch dramatiq-2.2.1/tests/__init__.py
cd dramatiq-2.2.1/tests/.. && mkdir -p ../alone && rm -rf ../alone/tests && cp -r tests ../alone/ && cd ../alone
"$python" -m pytest $quiet --rootdir . tests/test_actors.py tests/test_worker.py \
    tests/test_callbacks.py tests/test_generic_actors.py || true
