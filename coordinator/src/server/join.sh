#!/bin/sh
# Joins this host to a coordinator of c3po: downloads the program from it, checks it, and joins.
#   curl … /join.sh | C3PO_JOIN_CODE=CODE sh
set -eu

# Ends before the code was used, for the reason $1.
unspent() {
    cat >&2 <<END
join.sh: $1

Nothing was installed, and the code was not used. Until it expires, join this host in one of these ways:
  - Put the c3po of a release for $machine into the coordinator's data folder, as downloads/$machine/c3po,
    and run the same command again.
  - Build it here (Rust and a C compiler): git clone @REPOSITORY@ && cd c3po && make install
    Then: c3po join $url
    and enter the code when it asks.
END
    exit 1
}

# Joins with the code, or has it asked for on the terminal: standard input is this script.
joins() {
    if [ -n "$code" ]; then C3PO_JOIN_CODE=$code "$fetched" join "$url"; else "$fetched" join "$url" </dev/tty; fi
}

main() {
    url=@URL@
    if [ $# -gt 0 ]; then
        echo 'join.sh: every user of this machine sees the arguments of a program, so the code must not be one:' >&2
        echo '  curl … /join.sh | C3PO_JOIN_CODE=CODE sh' >&2
        exit 2
    fi
    # No program gets it but the one that needs it.
    code=${C3PO_JOIN_CODE:-}
    unset C3PO_JOIN_CODE
    if [ -z "$code" ] && ! (: </dev/tty) 2>/dev/null; then
        echo 'join.sh: the code is missing: copy the whole line that the coordinator printed' >&2
        exit 2
    fi
    arch=$(uname -m)
    case $arch in
    amd64) arch=x86_64 ;;
    arm64) arch=aarch64 ;;
    esac
    os=$(uname -s | tr '[:upper:]' '[:lower:]')
    [ "$os" = darwin ] && os=macos
    machine=$os-$arch
    sum=
    case $machine in
@SUMS@
    esac
    if [ -z "$sum" ]; then
        unspent "this coordinator has no program for $machine; it has @MACHINES@"
    fi
    folder=${C3PO_BIN_DIR:-$HOME/.local/bin}
    # Other users must not be able to replace the program.
    umask go-w
    mkdir -p "$folder"
    fetched=$(mktemp "$folder/.c3po.XXXXXX")
    trap 'rm -f "$fetched"' EXIT
    echo "fetching c3po for $machine from $url" >&2
    curl @CURL@ "$url/download/$machine/c3po" -o "$fetched"
    if command -v sha256sum >/dev/null 2>&1; then found=$(sha256sum "$fetched"); else found=$(shasum -a 256 "$fetched"); fi
    if [ "${found%% *}" != "$sum" ]; then
        echo 'join.sh: what was fetched is not what the coordinator said it is; nothing was installed' >&2
        exit 1
    fi
    chmod 755 "$fetched"
    # Before the code is used: a program that cannot run here would have used it for nothing.
    if ! why=$("$fetched" --version 2>&1 >/dev/null); then
        case $why in
        *denied*) why="$why (if $folder does not allow programs, set C3PO_BIN_DIR to another folder)" ;;
        esac
        unspent "the c3po for $machine does not run on this host: $(echo "$why" | head -n 1)"
    fi
    # Before it is put anywhere: a code that is worth nothing changes nothing on this host.
    if ! joins; then
        echo 'join.sh: this host did not join, and nothing was installed' >&2
        exit 1
    fi
    mv "$fetched" "$folder/c3po"
    trap - EXIT
    echo "installed $folder/c3po" >&2
    case $folder in
    *[!A-Za-z0-9/._-]*) word="'$folder/c3po'" ;;
    *) word=$folder/c3po ;;
    esac
    case :$PATH: in
    *:"$folder":*) ;;
    *) echo "note: $folder is not in PATH; until it is, run \`$word install\`" >&2 ;;
    esac
}

# Nothing runs before all of it is there.
main "$@"
