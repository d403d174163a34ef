#!/usr/bin/env bash
# Installs the Debian packages that slipway needs on a development machine and
# that are missing, or says which they are where it cannot.
#
#   install.sh run        what `make dev` needs: PostgreSQL and Nix
#   install.sh bao        what the nodes of the example read their secrets with
#                         (`make dev BAO=1`, and the tests): curl
#   install.sh run test   and what the tests need: a C compiler for the race
#                         detector, and Chromium for the browser tests
#   install.sh kube       what the Kubernetes API server of `make dev KUBE=1` and
#                         of the tests needs: etcd
set -euo pipefail

# A package, and a program that shows that it is there (or another way to it).
packages=()
need() { # need <package> <program>
  command -v "$2" >/dev/null || packages+=("$1")
}
for what in "$@"; do
  case "$what" in
    run)
      compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || need postgresql initdb
      need nix-bin nix-instantiate
      ;;
    bao)
      need curl curl
      ;;
    test)
      need gcc gcc
      [[ -e /usr/include/stdlib.h ]] || packages+=(libc6-dev)
      need chromium chromium
      ;;
    kube)
      need etcd-server etcd
      ;;
    *) echo "usage: $0 [run] [bao] [test] [kube]" >&2; exit 2 ;;
  esac
done
((${#packages[@]})) || exit 0

manual="Install these and run make again: ${packages[*]}"
if ! command -v apt-get >/dev/null; then
  echo "This machine is not a Debian one, so nothing is installed for you." >&2
  echo "$manual (PostgreSQL 15 or later, Nix 2.8 or later or Lix, etcd 3.4 or later)" >&2
  exit 1
fi
if [[ $EUID -ne 0 ]]; then
  echo "You are not root, so nothing is installed for you." >&2
  echo "$manual, for example: sudo apt-get update && sudo apt-get install -y ${packages[*]}" >&2
  [[ " ${packages[*]} " == *" nix-bin "* ]] &&
    echo "Without root, Nix also needs its daemon: nix-setup-systemd, and your user in the group nix-users." >&2
  [[ " ${packages[*]} " == *" etcd-server "* ]] &&
    echo "Only the program etcd is used; its service may go: sudo systemctl disable --now etcd" >&2
  exit 1
fi
echo "Installing the Debian packages ${packages[*]} (once) …"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Of etcd only the program is wanted: the package's service would hold its
# ports, now and after every start of the machine. systemd leaves a masked
# service alone; without systemd it is stopped after the installation.
if [[ " ${packages[*]} " == *" etcd-server "* ]]; then
  mkdir -p /etc/systemd/system
  [[ -e /etc/systemd/system/etcd.service ]] || ln -s /dev/null /etc/systemd/system/etcd.service
fi
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "apt-get failed. $manual" >&2
  exit 1
fi
if [[ " ${packages[*]} " == *" etcd-server "* && ! -d /run/systemd/system && -x /etc/init.d/etcd ]]; then
  /etc/init.d/etcd stop >/dev/null 2>&1 || true
  update-rc.d etcd disable >/dev/null 2>&1 || true
fi
echo "Installed."
