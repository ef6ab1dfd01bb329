#!/bin/sh
# Makes the secrets that docker-compose.yml mounts, in docker/secrets beside this script. Those that are there are kept.
#
# The folder is for you alone. The files in it are readable for all, because a container reads them as another user.
set -eu
cd "$(dirname "$0")"
umask 022
mkdir -p -m 0700 secrets
cd secrets

random() { # N bytes as letters and digits
    od -An -v -tx1 -N "$1" /dev/urandom | tr -d ' \n'
}

keep() { # NAME VALUE
    [ -s "$1" ] || printf '%s\n' "$2" > "$1"
}

keep runwire_api_keys "rwdev$(random 24):acme"
keep runwire_secret_key "$(random 32)"
keep tool_secret "whsec_$(head -c 32 /dev/urandom | base64 | tr -d '\n')"
keep postgres_password "$(random 24)"
keep runwire_database_url "postgresql://runwire:$(cat postgres_password)@postgres:5432/runwire"
echo "The API key of the tenant acme: $(cut -d: -f1 < runwire_api_keys)"
