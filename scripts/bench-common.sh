# Servers for the benchmark scripts that source this: starts them, finds their addresses, reads
# their memory, and stops what it started. Expects $corewise (the program) and $tool (a name for
# messages).
# shellcheck shell=bash

work=$(mktemp -d) || exit 1
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

bad() {
    echo "$tool: $1" >&2
    exit 2
}

say() { echo "$tool: $1" >&2; }

# The server that runs: PID and ADDR.
PID='' ADDR=''

free_port() {
    local port
    for _ in $(seq 100); do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return 0; }
    done
    return 1
}

start_memcached() { # megabytes threads [options...]
    local port user=() megabytes=$1 threads=$2
    shift 2
    port=$(free_port) || return 1
    [ "$(id -u)" = 0 ] && user=(-u root)
    memcached -l 127.0.0.1 -p "$port" -t "$threads" -m "$megabytes" "${user[@]}" "$@" >"$work/server.log" 2>&1 &
    PID=$! ADDR=127.0.0.1:$port
    pids+=("$PID")
    for _ in $(seq 100); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return 0
        kill -0 "$PID" 2>/dev/null || break
        sleep 0.1
    done
    say "memcached did not start: $(tail -n 1 "$work/server.log")"
    return 1
}

start_corewise() { # memory threads engine [options...]
    local options=(--memory "$1" --threads "$2" --listen 127.0.0.1:0)
    [ -n "$3" ] && options+=(--engine "$3")
    shift 3
    options+=("$@")
    "${server_program:-$corewise}" serve "${options[@]}" >"$work/server.log" 2>&1 &
    PID=$! ADDR=
    pids+=("$PID")
    for _ in $(seq 100); do
        ADDR=$(grep -oE '127\.0\.0\.1:[1-9][0-9]*' "$work/server.log" | head -n 1)
        [ -n "$ADDR" ] && return 0
        kill -0 "$PID" 2>/dev/null || break
        sleep 0.1
    done
    say "corewise serve did not start: $(tail -n 1 "$work/server.log")"
    return 1
}

stop_server() { # [signal]
    [ -n "$PID" ] || return 0
    kill -"${1:-TERM}" "$PID" 2>/dev/null
    wait "$PID" 2>/dev/null
    pids=("${pids[@]/$PID/}")
    PID=
}

# Resident set in KiB.
rss_kib() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$1/status" 2>/dev/null; }

# A value of a flat report.
get() { awk -v name="$2" '$1 == name { $1 = ""; print substr($0, 2); exit }' "$1"; }

# A statistic of the server that runs; nothing if it does not have it.
stat_of() { # name
    local name value line host=${ADDR%:*} port=${ADDR##*:}
    exec 4<>"/dev/tcp/$host/$port" || return 1
    printf 'stats\r\n' >&4
    while read -r -t 5 line name value <&4; do
        [ "${line%$'\r'}" = END ] && break
        [ "$name" = "$1" ] && echo "${value%$'\r'}"
    done
    exec 4>&-
}

# Runs `corewise load`; its flat report goes to the file.
load() { # file arguments...
    local out=$1 rc
    shift
    "$corewise" load "$ADDR" --server-pid "$PID" --format flat "$@" >"$out" 2>"$out.err"
    rc=$?
    [ $rc = 0 ] || say "corewise load: exit status $rc: $(tail -n 1 "$out.err")"
    return $rc
}

machine() { # report prefix
    echo "machine: $(get "$1" "$2.cpu"), $(get "$1" "$2.cpus") CPUs, Linux $(get "$1" "$2.kernel")," \
        "transparent huge pages $(get "$1" "$2.transparent_hugepages"), $(get "$1" "$2.date")"
}
