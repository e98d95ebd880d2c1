#!/bin/sh
# Makes the passwords of docker-compose.yml: one file each in ./secrets, 48 hexadecimal digits. What is there stays.
set -eu
umask 022 # users of the containers read the files; the folder keeps everybody else on this machine out
mkdir -p secrets
chmod 700 secrets
for name in postgres-password redis-password store-root-password store-secret-key webhook-key; do
    # Another password would lock the service out of a database and a store that exist already.
    test -s "secrets/$name" || od -An -v -N24 -tx1 /dev/urandom | tr -d ' \n' >"secrets/$name"
done
