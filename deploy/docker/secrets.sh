#!/bin/sh
# Makes what compose.yaml expects in secrets/: a certificate, the admin token, the passwords. Once.
set -eu
cd "$(dirname "$0")"
[ -e secrets/node.env ] && { echo "secrets/ is there already"; exit 0; }
umask 077
mkdir -p secrets/tls
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 825 \
    -subj "/CN=tandemq" \
    -addext "subjectAltName=DNS:node-a,DNS:node-b,DNS:toxiproxy,DNS:witness,DNS:etcd,DNS:localhost,IP:127.0.0.1" \
    -keyout secrets/tls/key.pem -out secrets/tls/cert.pem 2>/dev/null
word() { openssl rand -hex 24; }
token=$(word)
witness=$(word)
printf %s "$token" > secrets/token
printf %s "$witness" > secrets/witness-token
printf 'ADMIN_TOKEN=%s\nREPLICATOR_PASSWORD=%s\nWORKER_PASSWORD=%s\nWITNESS_TOKEN=%s\n' \
    "$token" "$(word)" "$(word)" "$witness" > secrets/node.env
# The containers' users are not ours.
chmod 755 secrets secrets/tls
chmod 644 secrets/tls/*.pem secrets/token secrets/witness-token
echo "made secrets/: the console's token is in secrets/token"
