#!/bin/sh
# Installs c3po from a release, without a Rust toolchain:
#   curl -q -fsSL URL/install.sh | sh                    c3po for this user, into ~/.local/bin
#   curl -q -fsSL URL/install.sh | sh -s -- --server     a coordinator that starts with this machine (systemd, sudo)
# C3PO_RELEASE names another place of the files, C3PO_BIN_DIR another folder. Programs from that place are run, with --server also
# as root, so run this where no project sets them.
set -eu

# Ends, for the reason given.
refuse() {
    echo "install.sh: $*" >&2
    exit 1
}

# Fetches the archive for the kind of machine $1, checks it, and unpacks it into folder $2.
fetch() {
    archive=c3po-$1.tar.gz
    curl -q -fsSL "$release/$archive" -o "$work/$archive" || return 1
    curl -q -fsSL "$release/$archive.sha256" -o "$work/$archive.sha256" || return 1
    expected=$(cut -d ' ' -f 1 "$work/$archive.sha256")
    if command -v sha256sum >/dev/null 2>&1; then
        found=$(sha256sum "$work/$archive")
    else
        found=$(shasum -a 256 "$work/$archive")
    fi
    [ "${found%% *}" = "$expected" ] || refuse "$archive does not match its checksum; nothing was installed"
    mkdir -p "$2"
    tar -xzf "$work/$archive" -C "$2" --strip-components 1
}

main() {
    # Other users must not be able to replace the programs.
    umask go-w
    release=${C3PO_RELEASE:-@REPOSITORY@/releases/latest/download}
    if [ -n "${C3PO_RELEASE:-}" ]; then echo "installing from $release (C3PO_RELEASE)" >&2; fi
    arch=$(uname -m)
    case $arch in
    amd64) arch=x86_64 ;;
    arm64) arch=aarch64 ;;
    esac
    os=$(uname -s | tr '[:upper:]' '[:lower:]')
    [ "$os" = darwin ] && os=macos
    machine=$os-$arch
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    fetch "$machine" "$work/c3po" || refuse "there is no c3po for $machine at $release; build it: @REPOSITORY@"
    why=$("$work/c3po/c3po" --version 2>&1 >/dev/null) || refuse "the c3po for $machine does not run here: $why"
    case ${1:-} in
    '') client ;;
    --server) server ;;
    *) refuse "there is no option $1" ;;
    esac
}

client() {
    folder=${C3PO_BIN_DIR:-$HOME/.local/bin}
    mkdir -p "$folder"
    # A program that runs is not written to, but replaced.
    cp "$work/c3po/c3po" "$folder/.c3po.new"
    mv "$folder/.c3po.new" "$folder/c3po"
    echo "installed $folder/c3po"
    case :$PATH: in
    *:"$folder":*) ;;
    *) echo "note: $folder is not in PATH" ;;
    esac
    echo "next: join this host with the command that c3po-coordinator invite prints ($folder/c3po join ...)"
    echo "then, for Claude Code: $folder/c3po install"
}

# Programs for hosts of other kinds come along: this coordinator gives them to hosts that join.
server() {
    for other in linux-x86_64 linux-aarch64 macos-aarch64 macos-x86_64; do
        if [ "$other" = "$machine" ]; then continue; fi
        if fetch "$other" "$work/$other"; then
            mkdir -p "$work/c3po/downloads/$other"
            mv "$work/$other/c3po" "$work/c3po/downloads/$other/c3po"
        else
            echo "note: there is no c3po for $other at $release"
        fi
    done
    "$work/c3po/install-server"
}

# Nothing runs before all of it is there.
main "$@"
